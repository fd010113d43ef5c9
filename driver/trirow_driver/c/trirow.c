#include "trirow.h"

#define DESCRIPTOR_BYTES UINT32_C(256)
#define MAJOR(version) ((version) >> 16)

trirow_status trirow_open(trirow_core *core, uintptr_t registers) {
    core->registers = registers;
    if (trirow_read(core, TRIROW_REG_ID) != TRIROW_RESET_ID) return TRIROW_NO_CORE;
    if (MAJOR(trirow_read(core, TRIROW_REG_VERSION)) != MAJOR(TRIROW_RESET_VERSION))
        return TRIROW_WRONG_VERSION;
    if (trirow_read(core, TRIROW_REG_LANES) != TRIROW_RESET_LANES ||
        trirow_read(core, TRIROW_REG_LINE_BUFFER_BYTES) != TRIROW_RESET_LINE_BUFFER_BYTES ||
        trirow_read(core, TRIROW_REG_WEIGHT_BUFFER_BYTES) != TRIROW_RESET_WEIGHT_BUFFER_BYTES ||
        trirow_read(core, TRIROW_REG_BUS_BYTES) != TRIROW_RESET_BUS_BYTES)
        return TRIROW_WRONG_CONFIG;
    return TRIROW_OK;
}

void trirow_load(void *memory, const void *image, size_t bytes) {
    /* Volatile, or a compiler could make a call of memcpy of it, which there may be none. */
    volatile unsigned char *to = memory;
    const unsigned char *from = image;
    for (size_t k = 0; k < bytes; ++k) to[k] = from[k];
    trirow_barrier();
}

trirow_status trirow_start(const trirow_core *core, const trirow_job *job) {
    uint32_t control = TRIROW_CONTROL_START;
    if (job->descriptor % DESCRIPTOR_BYTES || job->descriptor < job->base ||
        job->limit < DESCRIPTOR_BYTES || job->descriptor > job->limit - DESCRIPTOR_BYTES)
        return TRIROW_BAD_JOB;
    if (trirow_read(core, TRIROW_REG_STATUS) & TRIROW_STATUS_BUSY) return TRIROW_BUSY;
    trirow_write(core, TRIROW_REG_DESCRIPTOR, job->descriptor);
    trirow_write(core, TRIROW_REG_BASE, job->base);
    trirow_write(core, TRIROW_REG_LIMIT, job->limit);
    trirow_write(core, TRIROW_REG_WATCHDOG, job->watchdog);
    if (job->interrupt) control |= TRIROW_CONTROL_INTERRUPT_ENABLE;
    trirow_barrier();
    trirow_write(core, TRIROW_REG_CONTROL, control);
    trirow_barrier(); /* no later read of the status may see the run before */
    return TRIROW_OK;
}

/* Wait until the core is not busy; return its status register in any case. */
static uint32_t settle(const trirow_core *core, uint32_t polls) {
    uint32_t status = TRIROW_STATUS_BUSY;
    while (polls-- && status & TRIROW_STATUS_BUSY) status = trirow_read(core, TRIROW_REG_STATUS);
    trirow_barrier();
    return status;
}

trirow_status trirow_wait(const trirow_core *core, uint32_t polls) {
    const uint32_t status = settle(core, polls);
    if (status & TRIROW_STATUS_BUSY) return TRIROW_TIMEOUT;
    if (status & TRIROW_STATUS_ERROR) return TRIROW_FAILED;
    return status & TRIROW_STATUS_DONE ? TRIROW_OK : TRIROW_IDLE;
}

trirow_status trirow_stop(const trirow_core *core, uint32_t polls) {
    trirow_write(core, TRIROW_REG_CONTROL, TRIROW_CONTROL_RESET);
    trirow_barrier();
    return settle(core, polls) & TRIROW_STATUS_BUSY ? TRIROW_TIMEOUT : TRIROW_OK;
}

void trirow_acknowledge(const trirow_core *core) { trirow_write(core, TRIROW_REG_CONTROL, 0); }

trirow_failure trirow_get_failure(const trirow_core *core) {
    const uint32_t error = trirow_read(core, TRIROW_REG_ERROR);
    const trirow_failure failure = {error & 0xFF, error >> 8 & 0xFF, error >> 16};
    return failure;
}

#define NAME_CASE(name, number) \
    case number:                \
        return #name;

const char *trirow_error_name(uint32_t code) {
    switch (code) { TRIROW_ERRORS(NAME_CASE) }
    return "UNKNOWN";
}

const char *trirow_unit_name(uint32_t unit) {
    switch (unit) { TRIROW_UNITS(NAME_CASE) }
    return "UNKNOWN";
}

trirow_counters trirow_get_counters(const trirow_core *core) {
    trirow_counters counters;
#define READ_COUNTER(name, offset) counters.name = trirow_read(core, offset);
    TRIROW_COUNTERS(READ_COUNTER)
#undef READ_COUNTER
    return counters;
}

uint32_t trirow_passes(const trirow_core *core) {
    return trirow_read(core, TRIROW_REG_PASSES);
}
