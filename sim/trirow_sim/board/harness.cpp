// A board's model between an SDRAM chip and the host's end of its serial line, behind a C interface
// for ctypes.

#include <cstdint>
#include <memory>
#include <string>

#include "Vtrirow.h"
#include "verilated.h"

#include "sdram_chip.hpp"
#include "uart.hpp"

namespace {

constexpr unsigned kReady = 1, kBusy = 2, kActivity = 8;  // LEDs

class Board {
public:
    Board(const trirow::SdramParameters& chip, std::uint8_t* storage, double bit_cycles)
        : top_{std::make_unique<Vtrirow>(&context_)}, chip_{chip, storage}, sender_{bit_cycles},
          receiver_{bit_cycles} {
        top_->clk = top_->gated_clk = 0;
        top_->rx = 1;
        top_->dq_i = chip_.dq();
        top_->eval();
    }

    ~Board() { top_->final(); }

    // Let cycles pass; return whether all is well. If not, `error` says why and nothing moves on.
    bool step(std::uint64_t cycles) {
        for (std::uint64_t k = 0; k < cycles && error_.empty(); ++k) cycle();
        return error_.empty();
    }

    void push(const std::uint8_t* data, std::size_t size) { sender_.push(data, size); }
    std::size_t pull(std::uint8_t* data, std::size_t most) { return receiver_.pull(data, most); }

    // Bytes that the line has not begun with.
    std::size_t waiting() const { return sender_.waiting(); }

    // Cycles since something moved: a byte on the line, a run, the chip's initialisation; or the
    // board waited for the rest of a frame.
    std::uint64_t quiet() const { return static_cast<std::uint64_t>(cycles_ - moved_); }

    unsigned leds() const { return top_->leds; }
    std::uint64_t cycles() const { return static_cast<std::uint64_t>(cycles_); }
    std::uint64_t refreshes() const { return static_cast<std::uint64_t>(chip_.refreshes()); }
    const std::string& error() const { return error_; }

private:
    // All outputs but the gate are registers, and all inputs go into registers: what is seen before
    // a clock edge is the cycle's, and so are inputs that are set right before the edge.
    void cycle() {
        Vtrirow& t = *top_;
        t.clk = t.gated_clk = 0;
        t.eval();
        const std::uint32_t dq = chip_.dq();
        const trirow::SdramPins pins{t.cke != 0, t.cs_n != 0, t.ras_n != 0, t.cas_n != 0,
                                     t.we_n != 0, t.dq_oe != 0, t.ba, t.a, t.dqm, t.dq_o};
        if (!chip_.step(pins)) error_ = "SDRAM: " + chip_.error();
        if (!receiver_.step(t.tx, cycles_)) error_ = receiver_.error();
        const unsigned leds = t.leds & (kReady | kBusy | kActivity);
        if (leds != kReady || sender_.busy() || receiver_.busy()) moved_ = cycles_;
        t.dq_i = dq;
        t.rx = sender_.level(cycles_);
        t.clk = 1;
        t.gated_clk = t.gated_needed;
        t.eval();
        ++cycles_;
    }

    VerilatedContext context_;
    std::unique_ptr<Vtrirow> top_;
    trirow::SdramChip chip_;
    trirow::UartSender sender_;
    trirow::UartReceiver receiver_;
    std::int64_t cycles_ = 0, moved_ = 0;
    std::string error_;
};

Board* board(void* handle) { return static_cast<Board*>(handle); }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void* board_open(const trirow::SdramParameters* chip, std::uint8_t* storage,
                        double bit_cycles) {
    return new Board{*chip, storage, bit_cycles};
}

EXPORT void board_close(void* handle) { delete board(handle); }

EXPORT int board_step(void* handle, std::uint64_t cycles) { return board(handle)->step(cycles); }

EXPORT void board_push(void* handle, const std::uint8_t* data, std::size_t size) {
    board(handle)->push(data, size);
}

EXPORT std::size_t board_pull(void* handle, std::uint8_t* data, std::size_t most) {
    return board(handle)->pull(data, most);
}

EXPORT std::size_t board_waiting(void* handle) { return board(handle)->waiting(); }
EXPORT std::uint64_t board_quiet(void* handle) { return board(handle)->quiet(); }
EXPORT std::uint64_t board_cycles(void* handle) { return board(handle)->cycles(); }
EXPORT std::uint64_t board_refreshes(void* handle) { return board(handle)->refreshes(); }
EXPORT unsigned board_leds(void* handle) { return board(handle)->leds(); }
EXPORT const char* board_error(void* handle) { return board(handle)->error().c_str(); }
