// An SDR SDRAM as it behaves at its pins, with a check of every rule of its datasheet.
//
// The port of sim/trirow_sim/sdram_chip.py, which says what the rules are: the same data, and the
// same texts for what is wrong. docs/sdram.md has the geometry and timings of the chips.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

namespace trirow {

// Geometry, timings in ns, and the clock; the fields of trirow_hw.sdram.chips.SdramChip.
struct SdramParameters {
    unsigned data_bits, bank_bits, row_bits, column_bits, refreshes;
    double t_rcd, t_rp, t_ras, t_rc, t_rrd, t_rfc, t_wr, t_mrd, t_ras_max, refresh_ms, t_ck2, t_ck3;
    double startup_us, clock_hz;
};

// What the controller drives in one cycle; `dq` counts only with `dq_oe`.
struct SdramPins {
    bool cke, cs_n, ras_n, cas_n, we_n, dq_oe;
    std::uint32_t ba, a, dqm, dq;
};

// A chip. `step` is called once for each cycle with what the controller drives in it; after the call
// for cycle k, `dq` is what is on the data pins in cycle k + 1.
class SdramChip {
public:
    // `storage` has all bytes of the chip, from the lowest bit of an address on: byte, column, bank,
    // row. It is the caller's and outlives the chip.
    SdramChip(const SdramParameters& parameters, std::uint8_t* storage)
        : p_(parameters), storage_(storage), ns_(1e9 / parameters.clock_hz),
          interval_(parameters.refresh_ms * 1e6 / parameters.refreshes / ns_),
          mask_(parameters.data_bits == 32 ? 0xFFFF'FFFFu : (1u << parameters.data_bits) - 1) {}

    // Return whether all is well. If not, `error` says why, and the chip must not be used further.
    bool step(const SdramPins& pins) {
        const unsigned command =
            pins.cs_n ? NOP : pins.ras_n | pins.cas_n << 1 | pins.we_n << 2;
        if (!pins.cke && (commanded_ || command != NOP)) {
            return fail("CKE", -1, "down");
        }
        if (pins.dq_oe && (driven_ || driven_before_)) {
            return fail("DQ", -1, std::string("driven ") +
                        (driven_ ? "in a cycle" : "in the cycle after one") + " with read data");
        }
        if (command != NOP && !execute(command, pins)) {
            return false;
        }
        if (cycle_ > late_at_) {
            return fail("refresh", -1, "late, " + std::to_string(refreshes_) + " so far");
        }
        if (static_cast<double>(cycle_ - oldest_) * ns_ > p_.t_ras_max + SLACK_NS) {
            return row_too_long();
        }
        dqm_ = {pins.dqm, dqm_[0]};
        ++cycle_;
        show();
        return true;
    }

    // Data pins in the cycle to come.
    std::uint32_t dq() const { return dq_; }

    // Cycles, and REFRESH commands, so far.
    std::int64_t cycle() const { return cycle_; }
    std::int64_t refreshes() const { return refreshes_; }

    // What is wrong, in one line; empty if nothing is.
    const std::string& error() const { return error_; }

private:
    static constexpr unsigned MODE = 0, WRITE = 1, PRECHARGE = 2, REFRESH = 4, READ = 5;
    static constexpr unsigned ACTIVATE = 6, NOP = 7;
    static constexpr double SLACK_NS = 1e-3;
    static constexpr std::int64_t STARTUP_REFRESHES = 2, REFRESH_INTERVALS = 2;
    static constexpr std::int64_t LONG_AGO = -(std::int64_t{1} << 60);
    static constexpr std::int64_t NEVER = std::int64_t{1} << 60;

    struct Bank {
        std::int64_t row = -1;  // -1: closed
        std::int64_t activated = LONG_AGO, precharged = LONG_AGO, written = LONG_AGO;
    };

    unsigned banks() const { return 1u << p_.bank_bits; }
    unsigned bytes() const { return p_.data_bits / 8; }

    void show() {
        driven_before_ = driven_;
        const auto pattern = static_cast<std::uint32_t>(cycle_ * 0x9E37'79B1) & mask_;
        Read& read = reads_[cycle_ % reads_.size()];
        driven_ = read.cycle == cycle_;
        std::uint32_t blank = driven_ ? 0 : mask_;
        for (unsigned byte = 0; byte < bytes(); ++byte) {
            if (dqm_[1] >> byte & 1) {
                blank |= 0xFFu << 8 * byte;
            }
        }
        dq_ = (read.data & ~blank) | (pattern & blank);
    }

    bool execute(unsigned command, const SdramPins& pins) {
        const bool all = pins.a >> 10 & 1;
        if (!commanded_) {
            if (static_cast<double>(cycle_) * ns_ + SLACK_NS < 1e3 * p_.startup_us) {
                return fail("startup", -1,
                            "command " + std::to_string(cycle_) + " cycles after power-up");
            }
            if (command != PRECHARGE || !all) {
                return fail("startup", -1, "the first command must precharge all banks");
            }
            commanded_ = true;
        }
        if (!at_least("tRFC", -1, refreshed_, p_.t_rfc, "REFRESH") ||
            !at_least("tMRD", -1, mode_set_, p_.t_mrd, "MODE")) {
            return false;
        }
        switch (command) {
        case ACTIVATE:
            return activate(static_cast<int>(pins.ba), pins.a);
        case READ:
            return read(pins);
        case WRITE:
            return write(pins);
        case PRECHARGE:
            for (unsigned bank = all ? 0 : pins.ba; bank < (all ? banks() : pins.ba + 1); ++bank) {
                if (!precharge(static_cast<int>(bank))) {
                    return false;
                }
            }
            return true;
        case REFRESH:
            if (!all_closed("REFRESH")) {
                return false;
            }
            refreshed_ = cycle_;
            ++refreshes_;
            schedule_refresh();
            return true;
        case MODE:
            return set_mode(pins.a);
        default:
            return fail("command", -1, "burst stop");
        }
    }

    bool activate(int index, std::uint32_t row) {
        Bank& bank = banks_[index];
        if (refreshes_ < STARTUP_REFRESHES || !ready_) {
            return fail("startup", index, "ACTIVATE after " + std::to_string(refreshes_) +
                        " REFRESH" + (ready_ ? "" : " and no MODE"));
        }
        if (bank.row >= 0) {
            return fail("bank", index, "ACTIVATE, but row " + std::to_string(bank.row) + " is open");
        }
        if (!at_least("tRP", index, bank.precharged, p_.t_rp, "PRECHARGE") ||
            !at_least("tRC", index, bank.activated, p_.t_rc, "ACTIVATE") ||
            (activated_bank_ != index &&
             !at_least("tRRD", index, activated_, p_.t_rrd,
                       "ACTIVATE of bank " + std::to_string(activated_bank_)))) {
            return false;
        }
        bank.row = row & ((1u << p_.row_bits) - 1);
        bank.activated = activated_ = cycle_;
        activated_bank_ = index;
        find_oldest();
        return true;
    }

    bool precharge(int index) {
        Bank& bank = banks_[index];
        if (bank.row < 0) {
            return true;
        }
        if (!at_least("tRAS", index, bank.activated, p_.t_ras, "ACTIVATE") ||
            !at_least("tWR", index, bank.written, p_.t_wr, "WRITE")) {
            return false;
        }
        bank.row = -1;
        bank.precharged = cycle_;
        find_oldest();
        return true;
    }

    // Check READ or WRITE; return its first byte in the storage, or null.
    std::uint8_t* column(const SdramPins& pins) {
        const Bank& bank = banks_[pins.ba];
        const int index = static_cast<int>(pins.ba);
        if (bank.row < 0) {
            fail("bank", index, "READ or WRITE, but no row is open");
            return nullptr;
        }
        if (pins.a >> 10 & 1) {
            fail("command", index, "auto-precharge");
            return nullptr;
        }
        if (!at_least("tRCD", index, bank.activated, p_.t_rcd, "ACTIVATE")) {
            return nullptr;
        }
        const std::uint64_t row = static_cast<std::uint64_t>(bank.row) << p_.bank_bits | pins.ba;
        const std::uint32_t place = pins.a & ((1u << p_.column_bits) - 1);
        return storage_ + (row << p_.column_bits | place) * bytes();
    }

    bool read(const SdramPins& pins) {
        const std::uint8_t* from = column(pins);
        if (from == nullptr) {
            return false;
        }
        Read& read = reads_[(cycle_ + cas_latency_) % reads_.size()];
        read.cycle = cycle_ + cas_latency_;
        read.data = 0;
        for (unsigned byte = 0; byte < bytes(); ++byte) {
            read.data |= std::uint32_t{from[byte]} << 8 * byte;
        }
        return true;
    }

    bool write(const SdramPins& pins) {
        std::uint8_t* to = column(pins);
        if (to == nullptr) {
            return false;
        }
        if (!pins.dq_oe) {
            return fail("DQ", static_cast<int>(pins.ba), "not driven with WRITE");
        }
        for (unsigned byte = 0; byte < bytes(); ++byte) {
            if (!(pins.dqm >> byte & 1)) {
                to[byte] = static_cast<std::uint8_t>(pins.dq >> 8 * byte);
            }
        }
        banks_[pins.ba].written = cycle_;
        return true;
    }

    bool set_mode(std::uint32_t value) {
        if (!all_closed("MODE")) {
            return false;
        }
        const unsigned latency = value >> 4 & 7;
        if ((value & ~0x70u) || (latency != 2 && latency != 3)) {
            char text[16];
            std::snprintf(text, sizeof text, "0x%x", static_cast<unsigned>(value));
            return fail("mode", -1, text);
        }
        if (ns_ + SLACK_NS < (latency == 2 ? p_.t_ck2 : p_.t_ck3)) {
            return fail("mode", -1, "CAS latency " + std::to_string(latency) + " at this clock");
        }
        cas_latency_ = latency;
        mode_set_ = cycle_;
        if (!ready_) {
            ready_ = true;
            ready_at_ = cycle_ - intervals(refreshes_);
            schedule_refresh();
        }
        return true;
    }

    std::int64_t intervals(std::int64_t count) const {
        return static_cast<std::int64_t>(static_cast<double>(count) * interval_);
    }

    void schedule_refresh() {
        if (ready_) {
            late_at_ = std::min(std::max<std::int64_t>(refreshed_, 0) + intervals(REFRESH_INTERVALS),
                                ready_at_ + intervals(refreshes_ + REFRESH_INTERVALS));
        }
    }

    bool all_closed(const char* command) {
        for (unsigned i = 0; i < banks(); ++i) {
            const int index = static_cast<int>(i);
            if (banks_[i].row >= 0) {
                return fail("bank", index, std::string(command) + ", but row " +
                            std::to_string(banks_[i].row) + " is open");
            }
            if (!at_least("tRP", index, banks_[i].precharged, p_.t_rp, "PRECHARGE")) {
                return false;
            }
        }
        return true;
    }

    void find_oldest() {
        oldest_ = NEVER;
        for (unsigned i = 0; i < banks(); ++i) {
            if (banks_[i].row >= 0) {
                oldest_ = std::min(oldest_, banks_[i].activated);
            }
        }
    }

    bool row_too_long() {
        int index = 0;
        while (banks_[index].row < 0 || banks_[index].activated != oldest_) {
            ++index;
        }
        return fail("tRAS max", index,
                    "row open for " + std::to_string(cycle_ - oldest_) + " cycles");
    }

    bool at_least(const char* rule, int bank, std::int64_t since, double shortest,
                  const std::string& event) {
        const std::int64_t cycles = cycle_ - since;
        if (static_cast<double>(cycles) * ns_ + SLACK_NS >= shortest) {
            return true;
        }
        char text[32];
        std::snprintf(text, sizeof text, "%g", shortest);
        return fail(rule, bank, std::to_string(cycles) + " cycles after " + event + ", at least " +
                    text + " ns");
    }

    bool fail(const char* rule, int bank, const std::string& values) {
        error_ = "cycle " + std::to_string(cycle_) + ": " + rule + ": " +
                 (bank < 0 ? "" : "bank " + std::to_string(bank) + ": ") + values;
        return false;
    }

    // Data that are on the pins in a cycle.
    struct Read {
        std::int64_t cycle = -1;
        std::uint32_t data = 0;
    };

    SdramParameters p_;
    std::uint8_t* storage_;
    double ns_, interval_;
    std::uint32_t mask_;
    std::array<Bank, 4> banks_{};
    std::array<Read, 4> reads_{};
    std::array<std::uint32_t, 2> dqm_{};  // of the last two cycles, the later one first
    unsigned cas_latency_ = 0;
    bool driven_ = false, driven_before_ = false, commanded_ = false, ready_ = false;
    std::int64_t refreshed_ = LONG_AGO, mode_set_ = LONG_AGO, activated_ = LONG_AGO;
    int activated_bank_ = 0;
    std::int64_t ready_at_ = 0, late_at_ = NEVER, oldest_ = NEVER;
    std::int64_t cycle_ = 0, refreshes_ = 0;
    std::uint32_t dq_ = 0;
    std::string error_;
};

}  // namespace trirow
