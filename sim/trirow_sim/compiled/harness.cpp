// The accelerator's model with a memory on its bus and a host on its registers, behind a C
// interface for ctypes. It does cycle for cycle what trirow_sim.pysim does.

#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "Vtrirow.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

#include "axi.hpp"
#include "memory.hpp"

namespace {

constexpr int kCounters = 8;
constexpr int kTracks = 4;
constexpr int kPatience = 1000;  // cycles in which the registers must answer

struct Landing {
    uint32_t counters[kCounters];
};

// What a track shows from a cycle of the run on; see trirow_sim.probe.
struct Change {
    uint64_t start;
    uint32_t track, value;
};

struct Probe {
    uint64_t detail;
    uint32_t tracks[kTracks];
};

class Harness {
public:
    Harness(uint8_t* data, uint64_t size, uint64_t base, const char* model, uint32_t seed)
        : top_{std::make_unique<Vtrirow>(&context_)},
          model_{trirow::make_memory(model, {data, size, base}, BUS_BYTES, seed)},
          checker_{BUS_BYTES} {
        top_->clk = top_->gated_clk = 0;
        top_->s_bready = 1;
        top_->s_rready = 0;
        drive();
    }

    ~Harness() {
#if VM_TRACE
        if (trace_) trace_->close();
#endif
        top_->final();
    }

    void write(uint32_t offset, uint32_t value) {
        top_->s_awaddr = offset;
        top_->s_wdata = value;
        top_->s_wstrb = 0xF;
        top_->s_awvalid = 1;
        top_->s_wvalid = 1;
        until(kAwready);
        top_->s_awvalid = 0;
        top_->s_wvalid = 0;
        until(kBvalid);
    }

    uint32_t read(uint32_t offset) {
        top_->s_araddr = offset;
        top_->s_arvalid = 1;
        until(kArready);
        top_->s_arvalid = 0;
        top_->s_rready = 0;
        top_->eval();
        while (!top_->s_rvalid) cycle();
        const uint32_t value = top_->s_rdata;
        top_->s_rready = 1;
        until(kRvalid);
        return value;
    }

    // Let cycles pass up to a number, or until one in which the interrupt is up.
    bool run(uint64_t cycles) {
        for (uint64_t k = 0; k < cycles; ++k) {
            cycle();
            if (interrupt_) return true;
        }
        return false;
    }

    void begin() { landings_.clear(); }

    void trace(const char* path, uint64_t first, uint64_t last) {
#if VM_TRACE
        context_.traceEverOn(true);
        trace_ = std::make_unique<VerilatedVcdC>();
        top_->trace(trace_.get(), 99);
        trace_->open(path);
        if (!trace_->isOpen()) throw std::runtime_error("cannot write the waveforms");
        trace_first_ = first;
        trace_last_ = last;
#else
        (void)path, (void)first, (void)last;
        throw std::runtime_error("this library was built without waveforms");
#endif
    }

    void record() { recording_ = true; }

    // Forget what was recorded; what follows begins at cycle 0 with the value of each track.
    void forget() {
        changes_.clear();
        recorded_ = 0;
    }

    const Probe& probe() const { return probe_; }
    const std::vector<Change>& changes() const { return changes_; }
    uint64_t recorded() const { return recorded_; }
    uint64_t cycles() const { return cycles_; }
    uint64_t written() const { return written_; }
    const std::vector<Landing>& landings() const { return landings_; }

private:
    enum Flag { kAwready = 1, kBvalid = 2, kArready = 4, kRvalid = 8 };

    void until(int flag) {
        for (int k = 0; k < kPatience; ++k) {
            cycle();
            if (control_ & flag) return;
        }
        throw std::runtime_error("the registers do not answer");
    }

    // The inputs that the memory drives become valid with the edge: the gateware has registers for
    // them. The control bus has none, so a change of it is looked at before the edge.
    void cycle() {
        top_->clk = top_->gated_clk = 0;
        top_->eval();
        dump(0);
        sample();
        const unsigned landed = top_->landed;
        checker_.check(master_, model_->slave());
        model_->step(master_);
        drive();
        top_->clk = 1;
        top_->gated_clk = top_->gated_needed;
        top_->eval();
        dump(1);
        if (top_->running) look();
        if (landed > landings_.size()) land();
        ++cycles_;
    }

    void sample() {
        const Vtrirow& t = *top_;
        trirow::AxiMaster& m = master_;
        m.arvalid = t.m_arvalid;
        m.rready = t.m_rready;
        m.awvalid = t.m_awvalid;
        m.wvalid = t.m_wvalid;
        m.wlast = t.m_wlast;
        m.bready = t.m_bready;
        if (m.arvalid) {
            m.araddr = t.m_araddr;
            m.arlen = t.m_arlen;
            m.arsize = t.m_arsize;
            m.arburst = t.m_arburst;
        }
        if (m.awvalid) {
            m.awaddr = t.m_awaddr;
            m.awlen = t.m_awlen;
            m.awsize = t.m_awsize;
            m.awburst = t.m_awburst;
        }
        if (m.wvalid) {
            std::memcpy(m.wdata.data(), &t.m_wdata, BUS_BYTES);
            m.wstrb = {0, 0};
            std::memcpy(m.wstrb.data(), &t.m_wstrb, (BUS_BYTES + 7) / 8);
            if (model_->slave().wready)
                written_ += static_cast<uint64_t>(__builtin_popcountll(m.wstrb[0]) +
                                                  __builtin_popcountll(m.wstrb[1]));
        }
        control_ = (t.s_awready ? kAwready : 0) | (t.s_bvalid ? kBvalid : 0) |
                   (t.s_arready ? kArready : 0) | (t.s_rvalid ? kRvalid : 0);
        interrupt_ = t.irq;
    }

    // Look at the probe, whose registers have the values of the cycle before the clock edge.
    void look() {
        const Vtrirow& t = *top_;
        const Probe now{t.detail, {t.track0, t.track1, t.track2, t.track3}};
        if (recording_) {
            for (uint32_t k = 0; k < kTracks; ++k)
                if (recorded_ == 0 || now.tracks[k] != probe_.tracks[k])
                    changes_.push_back({recorded_, k, now.tracks[k]});
            ++recorded_;
        }
        probe_ = now;
    }

    void drive() {
        const trirow::AxiSlave& s = model_->slave();
        Vtrirow& t = *top_;
        t.next_m_arready = s.arready;
        t.next_m_rvalid = s.rvalid;
        t.next_m_rlast = s.rlast;
        t.next_m_rresp = s.rresp;
        t.next_m_awready = s.awready;
        t.next_m_wready = s.wready;
        t.next_m_bvalid = s.bvalid;
        t.next_m_bresp = s.bresp;
        if (s.rvalid) std::memcpy(&t.next_m_rdata, s.rdata.data(), BUS_BYTES);
    }

    void land() {
        const Vtrirow& t = *top_;
        landings_.push_back({{t.counter0, t.counter1, t.counter2, t.counter3, t.counter4,
                              t.counter5, t.counter6, t.counter7}});
    }

    void dump(int half) {
#if VM_TRACE
        if (trace_ && cycles_ >= trace_first_ && cycles_ <= trace_last_)
            trace_->dump(10 * cycles_ + (half ? 5 : 0));
#else
        (void)half;
#endif
    }

    VerilatedContext context_;
    std::unique_ptr<Vtrirow> top_;
    std::unique_ptr<trirow::MemoryModel> model_;
    trirow::AxiChecker checker_;
    trirow::AxiMaster master_{};
    std::vector<Landing> landings_;
    std::vector<Change> changes_;
    Probe probe_{};
    uint64_t cycles_ = 0, written_ = 0, recorded_ = 0;
    bool recording_ = false;
    int control_ = 0;
    bool interrupt_ = false;
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace_;
    uint64_t trace_first_ = 0, trace_last_ = 0;
#endif
};

std::string last_error;

// Call a function and return 0, or keep the text of its exception and return -1; -2 if a rule of
// the bus was broken.
template <typename Function>
int guarded(Function function) {
    try {
        function();
        return 0;
    } catch (const trirow::AxiViolation& error) {
        last_error = error.what();
        return -2;
    } catch (const std::exception& error) {
        last_error = error.what();
        return -1;
    }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* trirow_error() { return last_error.c_str(); }

Harness* trirow_open(uint8_t* data, uint64_t size, uint64_t base, const char* model, uint32_t seed) {
    Harness* harness = nullptr;
    guarded([&] { harness = new Harness(data, size, base, model, seed); });
    return harness;
}

void trirow_close(Harness* harness) { delete harness; }

int trirow_write(Harness* harness, uint32_t offset, uint32_t value) {
    return guarded([&] { harness->write(offset, value); });
}

int trirow_read(Harness* harness, uint32_t offset, uint32_t* value) {
    return guarded([&] { *value = harness->read(offset); });
}

int trirow_run(Harness* harness, uint64_t cycles, int* interrupt) {
    return guarded([&] { *interrupt = harness->run(cycles); });
}

int trirow_trace(Harness* harness, const char* path, uint64_t first, uint64_t last) {
    return guarded([&] { harness->trace(path, first, last); });
}

void trirow_begin(Harness* harness) { harness->begin(); }
uint64_t trirow_cycles(const Harness* harness) { return harness->cycles(); }
uint64_t trirow_written(const Harness* harness) { return harness->written(); }
uint64_t trirow_landings(const Harness* harness) { return harness->landings().size(); }

void trirow_landing(const Harness* harness, uint64_t index, uint32_t* counters) {
    std::memcpy(counters, harness->landings().at(index).counters, sizeof(Landing));
}

// What the tracks and the details were in the last cycle of a run.
void trirow_probe(const Harness* harness, Probe* probe) { *probe = harness->probe(); }

void trirow_record(Harness* harness) { harness->record(); }
void trirow_forget(Harness* harness) { harness->forget(); }
uint64_t trirow_recorded(const Harness* harness) { return harness->recorded(); }
uint64_t trirow_changes(const Harness* harness) { return harness->changes().size(); }
const Change* trirow_change(const Harness* harness) { return harness->changes().data(); }

}  // extern "C"
#pragma GCC visibility pop
