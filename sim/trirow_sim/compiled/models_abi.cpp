// Memory models and checker behind a C interface, for the comparison with their Python originals
// in tests/sim/test_compiled_memory.py.
//
// Cycles are passed as records without padding: the fields of AxiMaster or AxiSlave in their order,
// each in its own size and in the byte order of the machine.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>

#include "memory.hpp"

namespace {

using namespace trirow;

// Call f with every field in the order of the record.
template <class Master, class F>
void master_fields(Master& m, F f) {
    f(m.arvalid), f(m.araddr), f(m.arlen), f(m.arsize), f(m.arburst), f(m.rready);
    f(m.awvalid), f(m.awaddr), f(m.awlen), f(m.awsize), f(m.awburst);
    f(m.wvalid), f(m.wdata), f(m.wstrb), f(m.wlast), f(m.bready);
}

template <class Slave, class F>
void slave_fields(Slave& s, F f) {
    f(s.arready), f(s.rvalid), f(s.rdata), f(s.rresp), f(s.rlast);
    f(s.awready), f(s.wready), f(s.bvalid), f(s.bresp);
}

// Reads fields from a record, or writes them to one.
struct Reader {
    const std::uint8_t*& at;

    template <class T>
    void operator()(T& field) const {
        static_assert(std::is_trivially_copyable_v<T>);
        std::memcpy(&field, at, sizeof field);
        at += sizeof field;
    }
};

struct Writer {
    std::uint8_t*& at;

    template <class T>
    void operator()(const T& field) const {
        static_assert(std::is_trivially_copyable_v<T>);
        std::memcpy(at, &field, sizeof field);
        at += sizeof field;
    }
};

thread_local std::string last_error;

// Return what f returns, or `otherwise` with the text kept for trirow_error if it throws.
template <class T, class F>
T guarded(T otherwise, F f) {
    try {
        last_error.clear();
        return f();
    } catch (const std::exception& error) {
        last_error = error.what();
        return otherwise;
    }
}

}  // namespace

extern "C" {

// What the last call that failed has to say, empty if it did not fail.
const char* trirow_error() { return last_error.c_str(); }

// Make a model on `size` bytes of the caller; null if a parameter is wrong.
MemoryModel* trirow_model_create(const char* name, std::uint8_t* data, std::uint64_t size,
                                 std::uint64_t base, unsigned bus_bytes, std::uint32_t seed) {
    return guarded<MemoryModel*>(nullptr, [&] {
        return make_memory(name, Memory{data, size, base}, bus_bytes, seed).release();
    });
}

void trirow_model_destroy(MemoryModel* model) { delete model; }

// Step `count` cycles: take a record of a master for each, and leave there for each the record of
// the slave as it was in that cycle.
void trirow_model_run(MemoryModel* model, const std::uint8_t* masters, std::uint8_t* slaves,
                      std::size_t count) {
    AxiMaster master;
    while (count--) {
        master_fields(master, Reader{masters});
        slave_fields(model->slave(), Writer{slaves});
        model->step(master);
    }
}

// Make a checker; null if a parameter is wrong.
AxiChecker* trirow_checker_create(unsigned bus_bytes, unsigned max_burst_bytes,
                                  unsigned max_outstanding) {
    return guarded<AxiChecker*>(nullptr, [&] {
        return new AxiChecker(bus_bytes, max_burst_bytes, max_outstanding);
    });
}

void trirow_checker_destroy(AxiChecker* checker) { delete checker; }

// Check `count` cycles; return 0, or 1 if a rule is broken.
int trirow_checker_run(AxiChecker* checker, const std::uint8_t* masters,
                       const std::uint8_t* slaves, std::size_t count) {
    return guarded(1, [&] {
        AxiMaster master;
        AxiSlave slave;
        while (count--) {
            master_fields(master, Reader{masters});
            slave_fields(slave, Reader{slaves});
            checker->check(master, slave);
        }
        return 0;
    });
}

// Cycles, read bursts, read beats, write bursts and write beats so far, and whether it is idle.
void trirow_checker_state(const AxiChecker* checker, std::uint64_t* state) {
    state[0] = checker->cycle();
    state[1] = checker->read_bursts();
    state[2] = checker->read_beats();
    state[3] = checker->write_bursts();
    state[4] = checker->write_beats();
    state[5] = checker->idle();
}

}  // extern "C"
