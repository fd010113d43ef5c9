/* The driver's registers are those of a simulated core. */
extern uint32_t (*simulated_read)(uint32_t address);
extern void (*simulated_write)(uint32_t address, uint32_t value);

static inline uint32_t trirow_read(const trirow_core *core, uint32_t offset) {
    return simulated_read((uint32_t)core->registers + offset);
}

static inline void trirow_write(const trirow_core *core, uint32_t offset, uint32_t value) {
    simulated_write((uint32_t)core->registers + offset, value);
}

static inline void trirow_barrier(void) {}
