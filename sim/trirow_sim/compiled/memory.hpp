// The AXI4 memory models, each defined to the cycle; docs/memory-models.md describes them.
//
// The port of sim/trirow_sim/memory/: the same output in every cycle for the same input.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "axi.hpp"

namespace trirow {

// A range of bytes at a base address; the bytes are the caller's and outlive the models.
struct Memory {
    std::uint8_t* data;
    std::uint64_t size;
    std::uint64_t base = 0;

    // Whether all of `count` bytes from `addr` on exist.
    bool contains(std::uint64_t addr, std::uint64_t count) const {
        return addr >= base && count <= size && addr - base <= size - count;
    }

    // The byte at `addr`, which must exist, and those that follow it.
    std::uint8_t* at(std::uint64_t addr) const { return data + (addr - base); }
};

// An AXI4 memory, cycle by cycle. All outputs are registered: `slave` depends on state alone.
class MemoryModel {
public:
    MemoryModel(const Memory& memory, unsigned bus_bytes) : memory_(memory), bus_bytes_(bus_bytes) {
        require_bus_bytes(bus_bytes);
    }
    virtual ~MemoryModel() = default;
    MemoryModel(const MemoryModel&) = delete;
    MemoryModel& operator=(const MemoryModel&) = delete;

    // End the present cycle, in which the accelerator drove `master`, and begin the next.
    virtual void step(const AxiMaster& master) = 0;

    // What the memory drives in the present cycle; one object, changed by `step`.
    const AxiSlave& slave() const { return slave_; }

    // Number of the present cycle; 0 is the first one of the run.
    std::uint64_t cycle() const { return cycle_; }

    const Memory& memory() const { return memory_; }
    unsigned bus_bytes() const { return bus_bytes_; }

protected:
    Memory memory_;
    unsigned bus_bytes_;
    AxiSlave slave_;
    std::uint64_t cycle_ = 0;
};

// Base of the models: queues of 16 reads and 16 writes, answered in order ("What all have in
// common"). Bursts live in rings of fixed size with room for 256 beats each; a ring is addressed by
// counters that never wrap in a run, so the bursts from counter a to counter b are b - a in number.
class QueuedMemory : public MemoryModel {
public:
    // Reads, and writes, that a model takes before the first of them is complete.
    static constexpr std::uint64_t MAX_QUEUED = 16;

    void step(const AxiMaster& m) override {
        ++cycle_;
        if (reads() == 0 && open_writes() == 0 && !m.arvalid && !m.awvalid) {
            return;  // all that is driven is ARREADY and AWREADY
        }
        take(m);
        slave_.arready = reads() < MAX_QUEUED;
        slave_.awready = open_writes() < MAX_QUEUED;
        if (response_due()) {
            respond();
        }
        move(m);
    }

protected:
    // A read burst from its address handshake until its last beat is taken.
    struct Read {
        std::uint64_t addr;
        std::uint64_t due;  // first cycle in which data may be offered
        unsigned beats;
        unsigned beat;  // beats offered so far
        bool inside;    // all beats are within the memory
    };

    // A write burst from its address handshake until its response is taken.
    struct Write {
        std::uint64_t addr;
        std::uint64_t due;  // first cycle in which the response may be offered
        unsigned beats;
        unsigned beat;  // beats taken so far
        bool full;      // all strobes so far are set
    };

    // Latencies: from the address handshake to data, and from that of the last beat to B.
    QueuedMemory(const Memory& memory, unsigned bus_bytes, unsigned read_latency,
                 unsigned write_latency)
        : MemoryModel(memory, bus_bytes), read_latency_(read_latency),
          write_latency_(write_latency),
          read_data_(std::size_t{MAX_QUEUED} * MAX_BEATS * bus_bytes),
          write_data_(std::size_t{MAX_QUEUED} * MAX_BEATS * bus_bytes),
          write_strobes_(std::size_t{MAX_QUEUED} * MAX_BEATS) {
        for (unsigned i = 0; i < bus_bytes; ++i) {
            everything_[i / 64] |= std::uint64_t{1} << i % 64;
        }
        slave_.arready = 1;
        slave_.awready = 1;
    }

    // Set WREADY for the cycle that begins, and offer a read beat if the model allows.
    virtual void move(const AxiMaster& m) = 0;

    // Note that a read was queued, with its data due by the fixed latency.
    virtual void read_queued(Read&) {}

    // Note that the last beat of a read was taken in the cycle that ends.
    virtual void read_done() {}

    // Note that the last beat of a write was taken in the cycle that ends.
    virtual void write_done(Write& write) {
        write.due = cycle_ - 1 + write_latency_;
        ++responses_end_;
    }

    // Do the handshakes of the cycle that ends, which is cycle_ - 1.
    void take(const AxiMaster& m) {
        AxiSlave& s = slave_;
        if (s.rvalid && m.rready) {
            s.rvalid = 0;
            if (s.rlast) {
                ++reads_begin_;
                read_done();
            }
        }
        if (s.bvalid && m.bready) {
            s.bvalid = 0;
            ++responses_begin_;
        }
        if (m.wvalid && s.wready) {
            take_data(m);
        }
        if (m.arvalid && s.arready) {
            fetch(m);
        }
        if (m.awvalid && s.awready) {
            write_at(writes_end_++) = {m.awaddr & aligned(), 0, beats(m.awlen), 0, true};
        }
    }

    // Whether a response is to be offered in the cycle that begins.
    bool response_due() const {
        return responses_begin_ != responses_end_ && !slave_.bvalid &&
               writes_[responses_begin_ % MAX_QUEUED].due <= cycle_;
    }

    // Whether the oldest read is due and the output register is free for a beat of it.
    bool beat_due() const {
        return reads() && !slave_.rvalid && reads_[reads_begin_ % MAX_QUEUED].due <= cycle_;
    }

    // Offer the next beat of the oldest read; the register must be empty.
    void offer() {
        AxiSlave& s = slave_;
        Read& read = read_at(reads_begin_);
        const std::uint64_t offset = std::uint64_t{read.beat} * bus_bytes_;
        s.rvalid = 1;
        copy_beat(s.rdata.data(), &read_data_[slot(reads_begin_) * bus_bytes_ + offset]);
        s.rresp = read.inside || memory_.contains(read.addr + offset, bus_bytes_) ? OKAY : DECERR;
        s.rlast = ++read.beat == read.beats;
    }

    // Store the oldest complete write and offer its response.
    void respond() {
        const Write& write = write_at(responses_begin_);
        const std::uint8_t* data = &write_data_[slot(responses_begin_) * bus_bytes_];
        const Strobes* strobes = &write_strobes_[slot(responses_begin_)];
        const std::uint64_t count = std::uint64_t{write.beats} * bus_bytes_;
        std::uint8_t worst = OKAY;
        if (write.full && memory_.contains(write.addr, count)) {
            std::memcpy(memory_.at(write.addr), data, count);
        } else {
            for (std::uint64_t offset = 0; offset < count; offset += bus_bytes_, ++strobes) {
                if (memory_.contains(write.addr + offset, bus_bytes_)) {
                    store(memory_.at(write.addr + offset), data + offset, *strobes);
                } else {
                    worst = DECERR;
                }
            }
        }
        slave_.bvalid = 1;
        slave_.bresp = worst;
    }

    std::uint64_t reads() const { return reads_end_ - reads_begin_; }
    std::uint64_t open_writes() const { return writes_end_ - responses_begin_; }

    // Writes that lack data.
    std::uint64_t writes() const { return writes_end_ - writes_begin_; }

    Read& read_at(std::uint64_t counter) { return reads_[counter % MAX_QUEUED]; }
    Write& write_at(std::uint64_t counter) { return writes_[counter % MAX_QUEUED]; }

    // The reads; the writes, of which those from responses_begin_ to responses_end_ lack nothing
    // but the response, and those from writes_begin_ to writes_end_ lack data. Between the two
    // are those that the model still keeps to itself.
    std::uint64_t reads_begin_ = 0;
    std::uint64_t reads_end_ = 0;
    std::uint64_t responses_begin_ = 0;
    std::uint64_t responses_end_ = 0;
    std::uint64_t writes_begin_ = 0;
    std::uint64_t writes_end_ = 0;

private:
    static constexpr unsigned MAX_BEATS = 256;

    // Lengths have 8 bits; AxiChecker refuses longer ones.
    static unsigned beats(unsigned len) { return (len & 255) + 1; }

    // First beat of a burst in the rings of data and strobes.
    static std::size_t slot(std::uint64_t counter) {
        return static_cast<std::size_t>(counter % MAX_QUEUED) * MAX_BEATS;
    }

    std::uint64_t aligned() const { return ~std::uint64_t{bus_bytes_ - 1}; }

    // Copy a beat; the common widths without a call.
    void copy_beat(std::uint8_t* to, const std::uint8_t* from) const {
        switch (bus_bytes_) {
        case 8:
            std::memcpy(to, from, 8);
            break;
        case 16:
            std::memcpy(to, from, 16);
            break;
        case 32:
            std::memcpy(to, from, 32);
            break;
        case 64:
            std::memcpy(to, from, 64);
            break;
        default:
            std::memcpy(to, from, bus_bytes_);
        }
    }

    void store(std::uint8_t* to, const std::uint8_t* from, const Strobes& strobes) const {
        if (strobes == everything_) {
            copy_beat(to, from);
            return;
        }
        for (unsigned i = 0; i < bus_bytes_; ++i) {
            if (strobes[i / 64] >> i % 64 & 1) {
                to[i] = from[i];
            }
        }
    }

    void take_data(const AxiMaster& m) {
        Write& write = write_at(writes_begin_);
        const std::size_t beat = slot(writes_begin_) + write.beat;
        copy_beat(&write_data_[beat * bus_bytes_], m.wdata.data());
        const Strobes strobes{m.wstrb[0] & everything_[0], m.wstrb[1] & everything_[1]};
        write_strobes_[beat] = strobes;
        write.full = write.full && strobes == everything_;
        if (++write.beat == write.beats) {
            ++writes_begin_;
            write_done(write);
        }
    }

    // Queue a read with the data that the memory has now; beats outside are 0.
    void fetch(const AxiMaster& m) {
        const std::uint64_t addr = m.araddr & aligned();
        const std::uint64_t count = std::uint64_t{beats(m.arlen)} * bus_bytes_;
        const bool inside = memory_.contains(addr, count);
        std::uint8_t* data = &read_data_[slot(reads_end_) * bus_bytes_];
        if (inside) {
            std::memcpy(data, memory_.at(addr), count);
        } else {
            std::memset(data, 0, count);
            for (std::uint64_t offset = 0; offset < count; offset += bus_bytes_) {
                if (memory_.contains(addr + offset, bus_bytes_)) {
                    copy_beat(data + offset, memory_.at(addr + offset));
                }
            }
        }
        Read& read = read_at(reads_end_++);
        read = {addr, cycle_ - 1 + read_latency_, beats(m.arlen), 0, inside};
        read_queued(read);
    }

    unsigned read_latency_;
    unsigned write_latency_;
    Strobes everything_{};
    std::array<Read, MAX_QUEUED> reads_{};
    std::array<Write, MAX_QUEUED> writes_{};
    std::vector<std::uint8_t> read_data_;
    std::vector<std::uint8_t> write_data_;
    std::vector<Strobes> write_strobes_;
};

// Model `ideal`: nothing ever stands in the way.
class IdealMemory final : public QueuedMemory {
public:
    IdealMemory(const Memory& memory, unsigned bus_bytes) : QueuedMemory(memory, bus_bytes, 2, 1) {}

protected:
    void move(const AxiMaster&) override {
        slave_.wready = writes() != 0;
        if (beat_due()) {
            offer();
        }
    }
};

// Model `ddr`: a DDR3 controller behind a shared data bus.
class DdrMemory final : public QueuedMemory {
public:
    DdrMemory(const Memory& memory, unsigned bus_bytes) : QueuedMemory(memory, bus_bytes, 30, 10) {}

protected:
    void move(const AxiMaster& m) override {
        AxiSlave& s = slave_;
        if (m.wvalid && s.wready) {
            write_turn_ = false;
        }
        s.wready = 0;
        if (cycle_ % 780 >= 760) {
            return;
        }
        const bool write = writes() != 0;
        if (beat_due() && !(write && m.wvalid && write_turn_)) {
            offer();
            write_turn_ = true;
        } else if (write) {
            s.wready = 1;
        }
    }

private:
    bool write_turn_ = false;
};

// Model `sdram16`: a 16-bit SDR SDRAM as on small FPGA boards.
class Sdram16Memory final : public QueuedMemory {
public:
    Sdram16Memory(const Memory& memory, unsigned bus_bytes)
        : QueuedMemory(memory, bus_bytes, 5, 1), parts_(bus_bytes / 2),
          places_(BUFFER_BYTES / bus_bytes) {
        if (bus_bytes < 2) {
            throw std::invalid_argument("bus_bytes of sdram16 must be at least 2, not " +
                                        std::to_string(bus_bytes));
        }
        rows_.fill(~std::uint64_t{0});
    }

protected:
    void read_done() override { --moved_; }

    void write_done(Write&) override {}  // kept until all its bytes have moved

    void move(const AxiMaster& m) override {
        AxiSlave& s = slave_;
        if (m.wvalid && s.wready) {
            ++held_;
        }
        s.wready = writes() != 0 && held_ < places_;
        if (!serving_ && !choose()) {
            return;
        }
        if (wait_) {
            --wait_;
            return;
        }
        if (cycle_ % 780 >= 772) {
            return;
        }
        if (part_ + 1 < parts_) {
            ++part_;
        } else if (writing_ || !s.rvalid) {
            part_ = 0;
            end_beat();
        }
    }

private:
    static constexpr std::uint64_t ROW_BYTES = 1024;
    static constexpr unsigned BANKS = 4;
    static constexpr unsigned ROW_CYCLES = 6;
    static constexpr unsigned TURN_CYCLES = 4;
    static constexpr unsigned BUFFER_BYTES = 1024;

    // Choose the burst to serve from this cycle on; return whether there is one.
    bool choose() {
        const bool read = reads() > moved_ && read_at(reads_begin_ + moved_).due <= cycle_;
        const bool write = responses_end_ != writes_begin_;
        if (!read && !write) {
            return false;
        }
        const bool writing = write && !(read && writing_);
        wait_ = writing != writing_ ? TURN_CYCLES : 0;
        writing_ = writing;
        if (writing) {
            const Write& burst = write_at(responses_end_);
            addr_ = burst.addr;
            left_ = burst.beats;
        } else {
            const Read& burst = read_at(reads_begin_ + moved_);
            addr_ = burst.addr;
            left_ = burst.beats;
        }
        serving_ = true;
        open_row();
        return true;
    }

    void open_row() {
        const std::uint64_t row = addr_ / ROW_BYTES;
        if (rows_[row % BANKS] != row) {
            rows_[row % BANKS] = row;
            wait_ += ROW_CYCLES;
        }
    }

    // Finish the present beat, whose last part moves in the cycle that begins.
    void end_beat() {
        if (writing_) {
            --held_;
        } else {
            offer();
        }
        if (--left_) {
            addr_ += bus_bytes_;
            open_row();
            return;
        }
        serving_ = false;
        if (writing_) {
            write_at(responses_end_++).due = cycle_ + 1;
        } else {
            ++moved_;
        }
    }

    unsigned parts_;
    unsigned places_;
    unsigned held_ = 0;  // beats in the write buffer
    std::array<std::uint64_t, BANKS> rows_;
    bool writing_ = false;     // direction of the chip
    bool serving_ = false;     // whether a burst is being served
    std::uint64_t addr_ = 0;   // present beat of it
    unsigned left_ = 0;        // beats of it that have not moved
    unsigned part_ = 0;        // parts of 2 bytes of the present beat that have moved
    unsigned wait_ = 0;        // cycles until the next part may move
    std::uint64_t moved_ = 0;  // reads at the head of the queue that the chip has done with
};

// Model `nngen`: the memory under which NNgen's accelerators are measured.
class NngenMemory final : public QueuedMemory {
public:
    NngenMemory(const Memory& memory, unsigned bus_bytes)
        : QueuedMemory(memory, bus_bytes, READ_LATENCY, 1) {}

protected:
    void read_done() override { read_free_ = cycle_ - 1 + READ_LATENCY; }

    void write_done(Write& write) override {
        QueuedMemory::write_done(write);
        --addressed_;
    }

    void move(const AxiMaster&) override {
        if (phase_end_ && phase_end_ < cycle_) {
            phase_end_ = 0;
            ++addressed_;
        }
        if (!phase_end_ && addressed_ < 2 && writes() > addressed_) {
            phase_end_ = cycle_ + ADDRESS_CYCLES - 1;
        }
        if (cycle_ % 19 >= 15) {
            slave_.wready = 0;
            return;
        }
        slave_.wready = addressed_ != 0;
        if (beat_due() && read_free_ <= cycle_) {
            offer();
        }
    }

private:
    static constexpr unsigned ADDRESS_CYCLES = 12;
    static constexpr unsigned READ_LATENCY = ADDRESS_CYCLES + 1;

    std::uint64_t read_free_ = 0;  // first cycle in which the burst before lets data be offered
    std::uint64_t addressed_ = 0;  // writes at the head of the queue whose address phase is over
    std::uint64_t phase_end_ = 0;  // last cycle of the address phase that runs; 0 if none does
};

// State after `x` of Marsaglia's generator with shifts 13, 17 and 5.
constexpr std::uint32_t xorshift32(std::uint32_t x) {
    x ^= x << 13;
    x ^= x >> 17;
    return x ^ x << 5;
}

// Model `random`: stalls and latencies drawn from a seed.
class RandomMemory final : public QueuedMemory {
public:
    RandomMemory(const Memory& memory, unsigned bus_bytes, std::uint32_t seed = 1)
        : QueuedMemory(memory, bus_bytes, 1, 1) {
        for (unsigned k = 0; k < CHANNELS; ++k) {
            draws_[k] = seed * 0x9E3779B9u + k * 0x85EBCA6Bu;
            if (draws_[k] == 0) {
                draws_[k] = 1;
            }
        }
    }

    void step(const AxiMaster& m) override {
        ++cycle_;
        for (unsigned k = 0; k < CHANNELS; ++k) {
            const std::uint32_t d = draws_[k] = xorshift32(draws_[k]);
            if (stalls_[k]) {
                --stalls_[k];
            } else if ((d & 7) == 0) {
                stalls_[k] = (d >> 3 & 31) == 0 ? 32 + (d >> 8) % 128 : 1 + (d >> 8) % 8;
            }
        }
        take(m);
        slave_.arready = reads() < MAX_QUEUED && !stalls_[AR];
        slave_.awready = open_writes() < MAX_QUEUED && !stalls_[AW];
        if (!stalls_[B] && response_due()) {
            respond();
        }
        move(m);
    }

protected:
    void move(const AxiMaster&) override {
        slave_.wready = writes() != 0 && !stalls_[W];
        if (!stalls_[R] && beat_due()) {
            offer();
        }
    }

    void read_queued(Read& read) override { read.due = cycle_ + (draws_[R] >> 16) % 60; }

    void write_done(Write& write) override {
        QueuedMemory::write_done(write);
        write.due = cycle_ + (draws_[B] >> 16) % 60;
    }

private:
    enum Channel : unsigned { AR, R, AW, W, B, CHANNELS };

    std::array<std::uint32_t, CHANNELS> draws_{};
    std::array<std::uint32_t, CHANNELS> stalls_{};
};

// Make a memory model in its first cycle. The seed is for `random`; the others have no use for it.
// Throws std::invalid_argument if there is no such model, or a parameter is out of range.
inline std::unique_ptr<MemoryModel> make_memory(const std::string& name, const Memory& memory,
                                                unsigned bus_bytes, std::uint32_t seed = 1) {
    if (name == "ideal") {
        return std::make_unique<IdealMemory>(memory, bus_bytes);
    }
    if (name == "ddr") {
        return std::make_unique<DdrMemory>(memory, bus_bytes);
    }
    if (name == "sdram16") {
        return std::make_unique<Sdram16Memory>(memory, bus_bytes);
    }
    if (name == "nngen") {
        return std::make_unique<NngenMemory>(memory, bus_bytes);
    }
    if (name == "random") {
        return std::make_unique<RandomMemory>(memory, bus_bytes, seed);
    }
    throw std::invalid_argument("memory must be one of ideal, ddr, sdram16, nngen, random, not '" +
                                name + "'");
}

}  // namespace trirow
