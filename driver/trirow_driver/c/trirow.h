/* Bare-metal driver of Trirow: C99, no allocation, nothing of libc but types. */
#ifndef TRIROW_H
#define TRIROW_H

#include <stddef.h>
#include <stdint.h>

#include "trirow_registers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A core; `registers` is the address of its registers, as the processor sees it. */
typedef struct {
    uintptr_t registers;
} trirow_core;

/* How the registers are accessed. By default they are in the processor's address space. With
 * TRIROW_IO_HEADER defined as the name of a header, quotes included, that header is included
 * instead; it has to define these three. */
#ifdef TRIROW_IO_HEADER
#include TRIROW_IO_HEADER
#else
static inline uint32_t trirow_read(const trirow_core *core, uint32_t offset) {
    return *(const volatile uint32_t *)(core->registers + offset);
}

static inline void trirow_write(const trirow_core *core, uint32_t offset, uint32_t value) {
    *(volatile uint32_t *)(core->registers + offset) = value;
}

/* Order accesses to memory before it with accesses to registers behind it, and the other way
 * round. It does nothing to caches: see docs/export.md. */
static inline void trirow_barrier(void) {
#if defined(__riscv)
    __asm__ volatile("fence iorw, iorw" ::: "memory");
#elif defined(__GNUC__)
    __sync_synchronize();
#endif
}
#endif

typedef enum {
    TRIROW_OK,
    TRIROW_NO_CORE,       /* the register `id` does not read as it must */
    TRIROW_WRONG_VERSION, /* the registers have another major version than the header */
    TRIROW_WRONG_CONFIG,  /* lanes, buffers or bus are not those of the header */
    TRIROW_BAD_JOB,       /* descriptor not a multiple of 256 or outside the window */
    TRIROW_BUSY,          /* a run goes on */
    TRIROW_TIMEOUT,       /* not in as many polls */
    TRIROW_FAILED,        /* the run ended in an error: see trirow_get_failure */
    TRIROW_IDLE           /* no run was started, or it was stopped */
} trirow_status;

#define TRIROW_ENUMERATOR(name, number) TRIROW_ERROR_##name = number,
typedef enum { TRIROW_ERRORS(TRIROW_ENUMERATOR) } trirow_error_code;
#undef TRIROW_ENUMERATOR

#define TRIROW_ENUMERATOR(name, number) TRIROW_UNIT_##name = number,
typedef enum { TRIROW_UNITS(TRIROW_ENUMERATOR) } trirow_unit;
#undef TRIROW_ENUMERATOR

/* What a run is. Addresses are those of the core's memory bus. */
typedef struct {
    uint32_t descriptor; /* of the first pass, a multiple of 256 */
    uint32_t base;       /* first address that may be accessed */
    uint32_t limit;      /* end of them, exclusive */
    uint32_t watchdog;   /* cycles without progress that end the run; 0: never */
    int interrupt;       /* not 0: raise the interrupt at the end */
} trirow_job;

/* Why a run failed. The numbers are plain: a later version of the core may have more of them. */
typedef struct {
    uint32_t code; /* one of trirow_error_code */
    uint32_t unit; /* one of trirow_unit */
    uint32_t pass; /* index of the pass */
} trirow_failure;

/* Counters of the last run, in clock cycles and in beats of the memory bus. */
#define TRIROW_MEMBER(name, offset) uint32_t name;
typedef struct {
    TRIROW_COUNTERS(TRIROW_MEMBER)
} trirow_counters;
#undef TRIROW_MEMBER

/* Look whether there is a core of the header's version and configuration. */
trirow_status trirow_open(trirow_core *core, uintptr_t registers);

/* Copy a program's image to the place that it was packed for. */
void trirow_load(void *memory, const void *image, size_t bytes);

/* Start a run. TRIROW_BUSY or TRIROW_BAD_JOB: nothing was started. */
trirow_status trirow_start(const trirow_core *core, const trirow_job *job);

/* Look whether the run has ended, at most `polls` times; also to be called after an interrupt, for
 * a run that failed interrupts at once, while accesses are on the way.
 * TRIROW_OK: all outputs are in memory. TRIROW_FAILED: nothing is on the way any more.
 * TRIROW_TIMEOUT: the run goes on; wait again, or stop it. TRIROW_IDLE: there was none. */
trirow_status trirow_wait(const trirow_core *core, uint32_t polls);

/* Stop a run, and wait until nothing is on the way. TRIROW_TIMEOUT: something still was after
 * `polls` looks, the memory does not answer. */
trirow_status trirow_stop(const trirow_core *core, uint32_t polls);

/* Take back the interrupt, and enable it no more before the next start. */
void trirow_acknowledge(const trirow_core *core);

/* Why the last run failed. */
trirow_failure trirow_get_failure(const trirow_core *core);

/* Name of an error code or a unit; "UNKNOWN" for other numbers. */
const char *trirow_error_name(uint32_t code);
const char *trirow_unit_name(uint32_t unit);

/* Counters of the last run; those of a run that goes on are not consistent. */
trirow_counters trirow_get_counters(const trirow_core *core);

/* Passes of this run whose outputs are in memory. */
uint32_t trirow_passes(const trirow_core *core);

#ifdef __cplusplus
}
#endif

#endif
