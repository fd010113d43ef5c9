// The host's end of a serial line, bit by bit: 8 data bits, no parity, one stop bit. Bits need not be
// whole cycles long; what is rounded does not add up.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace trirow {

constexpr int kFrameBits = 10;  // start bit, data, stop bit

// Drives a line with bytes from a queue, without a gap between them.
class UartSender {
public:
    explicit UartSender(double bit_cycles) : bit_cycles_{bit_cycles} {}

    void push(const std::uint8_t* data, std::size_t size) {
        queue_.insert(queue_.end(), data, data + size);
    }

    // Return the line's level in a cycle; called for each one.
    bool level(std::int64_t cycle) {
        if (cycle >= next_) advance(cycle);
        return level_;
    }

    bool busy() const { return sending_ || !queue_.empty(); }
    std::size_t waiting() const { return queue_.size(); }

private:
    void advance(std::int64_t cycle) {
        if (sending_ && ++bit_ == kFrameBits) {
            sending_ = false;
            begin_ += kFrameBits * bit_cycles_;
        }
        if (!sending_) {
            if (queue_.empty()) return;
            sending_ = true;
            bit_ = 0;
            word_ = 1u << (kFrameBits - 1) | unsigned{queue_.front()} << 1;
            queue_.pop_front();
            // Right behind the byte before, unless that was long ago.
            if (begin_ < static_cast<double>(cycle - 1)) begin_ = static_cast<double>(cycle);
        }
        level_ = word_ >> bit_ & 1;
        next_ = static_cast<std::int64_t>(std::ceil(begin_ + (bit_ + 1) * bit_cycles_));
    }

    double bit_cycles_, begin_ = -1e18;
    std::deque<std::uint8_t> queue_;
    bool sending_ = false, level_ = true;
    int bit_ = 0;
    unsigned word_ = 0;
    std::int64_t next_ = 0;
};

// Takes bytes from a line into a queue. Each bit is looked at in its middle.
class UartReceiver {
public:
    explicit UartReceiver(double bit_cycles) : bit_cycles_{bit_cycles} {}

    // Look at the line in a cycle; return whether all is well. If not, `error` says why.
    bool step(bool level, std::int64_t cycle) {
        if (!receiving_) {
            if (!level) {
                receiving_ = true;
                begin_ = cycle;
                bit_ = 0;
                word_ = 0;
                schedule();
            }
            return true;
        }
        if (cycle < next_) return true;
        word_ |= unsigned{level} << bit_;
        if (++bit_ < kFrameBits) {
            schedule();
            return true;
        }
        receiving_ = false;
        if ((word_ & 1) || !(word_ >> (kFrameBits - 1))) {
            error_ = "cycle " + std::to_string(begin_) + ": UART: the board sent no " +
                     ((word_ & 1) ? "start bit" : "stop bit");
            return false;
        }
        bytes_.push_back(static_cast<std::uint8_t>(word_ >> 1));
        return true;
    }

    std::size_t pull(std::uint8_t* data, std::size_t most) {
        const std::size_t count = bytes_.size() < most ? bytes_.size() : most;
        for (std::size_t k = 0; k < count; ++k) {
            data[k] = bytes_.front();
            bytes_.pop_front();
        }
        return count;
    }

    bool busy() const { return receiving_; }
    const std::string& error() const { return error_; }

private:
    void schedule() { next_ = begin_ + static_cast<std::int64_t>((bit_ + 0.5) * bit_cycles_); }

    double bit_cycles_;
    std::deque<std::uint8_t> bytes_;
    bool receiving_ = false;
    int bit_ = 0;
    unsigned word_ = 0;
    std::int64_t begin_ = 0, next_ = 0;
    std::string error_;
};

}  // namespace trirow
