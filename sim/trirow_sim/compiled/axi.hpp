// The two sides of an AXI4 port as plain values, and a checker of the rules between them.
//
// The port of sim/trirow_sim/axi.py: same fields, same rules, same words. An engine samples what
// the accelerator drives into an AxiMaster, takes what the memory drives from an AxiSlave, and
// shows both to an AxiChecker once each cycle.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace trirow {

constexpr std::uint8_t OKAY = 0;
constexpr std::uint8_t SLVERR = 2;
constexpr std::uint8_t DECERR = 3;

constexpr std::uint8_t INCR = 1;

constexpr std::uint64_t BOUNDARY = 4096;
constexpr unsigned MAX_BUS_BYTES = 128;

// A beat of data, lowest address first; the bytes above the width of the bus are not looked at.
using Bytes = std::array<std::uint8_t, MAX_BUS_BYTES>;

// Bit i mod 64 of word i div 64 enables byte i of a beat; the bits above the width are 0.
using Strobes = std::array<std::uint64_t, 2>;

// What the accelerator drives in one cycle. One object may be reused from cycle to cycle.
struct AxiMaster {
    std::uint8_t arvalid = 0;
    std::uint64_t araddr = 0;
    std::uint16_t arlen = 0;
    std::uint8_t arsize = 0;
    std::uint8_t arburst = INCR;
    std::uint8_t rready = 0;
    std::uint8_t awvalid = 0;
    std::uint64_t awaddr = 0;
    std::uint16_t awlen = 0;
    std::uint8_t awsize = 0;
    std::uint8_t awburst = INCR;
    std::uint8_t wvalid = 0;
    Bytes wdata{};
    Strobes wstrb{};
    std::uint8_t wlast = 0;
    std::uint8_t bready = 0;
};

// What the memory drives in one cycle.
struct AxiSlave {
    std::uint8_t arready = 0;
    std::uint8_t rvalid = 0;
    Bytes rdata{};
    std::uint8_t rresp = OKAY;
    std::uint8_t rlast = 0;
    std::uint8_t awready = 0;
    std::uint8_t wready = 0;
    std::uint8_t bvalid = 0;
    std::uint8_t bresp = OKAY;
};

// Throws std::invalid_argument unless the width is a power of two from 1 to 128.
inline void require_bus_bytes(unsigned bus_bytes) {
    if (bus_bytes == 0 || bus_bytes > MAX_BUS_BYTES || (bus_bytes & (bus_bytes - 1)) != 0) {
        throw std::invalid_argument("bus_bytes must be a power of two from 1 to 128, not " +
                                    std::to_string(bus_bytes));
    }
}

// A rule of AXI4, or of this accelerator's use of it, is broken; what() has all three in words.
class AxiViolation : public std::runtime_error {
public:
    AxiViolation(std::uint64_t cycle, const std::string& channel, const std::string& rule)
        : std::runtime_error("cycle " + std::to_string(cycle) + ": " + channel + ": " + rule),
          cycle(cycle), channel(channel), rule(rule) {}

    std::uint64_t cycle;  // counted from 0 at the first call of AxiChecker::check
    std::string channel;  // AR, R, AW, W or B
    std::string rule;     // what is wrong, with the values
};

// Checker of one AXI4 port; both sides are checked. The rules are those of AxiChecker in
// sim/trirow_sim/axi.py, channel by channel. After a violation the checker is of no further use.
class AxiChecker {
public:
    explicit AxiChecker(unsigned bus_bytes, unsigned max_burst_bytes = 512,
                        unsigned max_outstanding = 16)
        : bus_bytes_(bus_bytes), max_burst_bytes_(max_burst_bytes),
          max_outstanding_(max_outstanding), reads_(max_outstanding), writes_(max_outstanding) {
        require_bus_bytes(bus_bytes);
        while (bus_bytes >> (size_ + 1)) {
            ++size_;
        }
    }

    // Check one cycle: what both sides drive in it. Throws AxiViolation.
    void check(const AxiMaster& m, const AxiSlave& s) {
        // R and B go first: they answer what was taken in earlier cycles, not in this one.
        if (s.rvalid || r_.waits) {
            check_r(m, s);
        }
        if (s.bvalid || b_.waits) {
            check_b(m, s);
        }
        if (m.arvalid || ar_.waits) {
            check_ar(m, s);
        }
        if (m.awvalid || aw_.waits) {
            check_aw(m, s);
        }
        if (m.wvalid || w_.waits) {
            check_w(m, s);
        }
        ++cycle_;
    }

    // Whether no burst is outstanding and no valid waits.
    bool idle() const {
        return reads_.size() == 0 && writes_.size() == 0 && landed_ == 0 && !ar_.waits &&
               !aw_.waits && !w_.waits && !r_.waits && !b_.waits;
    }

    // Cycles checked so far, and handshakes so far on AR, R, AW and W.
    std::uint64_t cycle() const { return cycle_; }
    std::uint64_t read_bursts() const { return read_bursts_; }
    std::uint64_t read_beats() const { return read_beats_; }
    std::uint64_t write_bursts() const { return write_bursts_; }
    std::uint64_t write_beats() const { return write_beats_; }

private:
    // Payloads that waited for ready at the end of the cycle before.
    struct Address {
        bool waits = false;
        std::uint64_t addr = 0;
        std::uint16_t len = 0;
        std::uint8_t size = 0;
        std::uint8_t burst = 0;

        std::string text() const {
            return "(" + std::to_string(addr) + ", " + std::to_string(len) + ", " +
                   std::to_string(size) + ", " + std::to_string(burst) + ")";
        }
    };
    struct WriteBeat {
        bool waits = false;
        Bytes data{};
        Strobes strobes{};
        std::uint8_t last = 0;
    };
    struct ReadBeat {
        bool waits = false;
        Bytes data{};
        std::uint8_t resp = 0;
        std::uint8_t last = 0;
    };
    struct Response {
        bool waits = false;
        std::uint8_t resp = 0;
    };

    // Beats still to come of the bursts of one direction, oldest first, in a ring of fixed size.
    class Bursts {
    public:
        explicit Bursts(unsigned capacity) : left_(capacity) {}

        unsigned size() const { return size_; }
        unsigned& front() { return left_[head_]; }

        void push(unsigned beats) {
            const std::size_t tail = head_ + size_++;
            left_[tail < left_.size() ? tail : tail - left_.size()] = beats;
        }

        void pop() {
            head_ = head_ + 1 < left_.size() ? head_ + 1 : 0;
            --size_;
        }

    private:
        std::vector<unsigned> left_;
        std::size_t head_ = 0;
        unsigned size_ = 0;
    };

    void check_ar(const AxiMaster& m, const AxiSlave& s) {
        check_address("AR", ar_, m.arvalid, {!s.arready, m.araddr, m.arlen, m.arsize, m.arburst});
        if (s.arready) {
            ++read_bursts_;
            check_outstanding("AR", reads_.size() + 1);
            reads_.push(m.arlen + 1u);
        }
    }

    void check_aw(const AxiMaster& m, const AxiSlave& s) {
        check_address("AW", aw_, m.awvalid, {!s.awready, m.awaddr, m.awlen, m.awsize, m.awburst});
        if (s.awready) {
            ++write_bursts_;
            check_outstanding("AW", writes_.size() + 1 + landed_);
            writes_.push(m.awlen + 1u);
        }
    }

    void check_w(const AxiMaster& m, const AxiSlave& s) {
        if (w_.waits) {
            check_valid("W", m.wvalid);
            if (!same(w_.data, m.wdata) || w_.strobes != m.wstrb || w_.last != m.wlast) {
                fail_changed("W", text(w_.data, &w_.strobes, w_.last),
                             text(m.wdata, &m.wstrb, m.wlast));
            }
        } else if (!s.wready) {
            std::memcpy(w_.data.data(), m.wdata.data(), bus_bytes_);
            w_.strobes = m.wstrb;
            w_.last = m.wlast;
        }
        w_.waits = !s.wready;
        if (s.wready) {
            if (writes_.size() == 0) {
                fail("W", "data before its address, or more beats than promised");
            }
            ++write_beats_;
            if (take_beat("W", writes_, m.wlast)) {
                ++landed_;
            }
        }
    }

    void check_r(const AxiMaster& m, const AxiSlave& s) {
        if (r_.waits) {
            check_valid("R", s.rvalid);
            if (!same(r_.data, s.rdata) || r_.resp != s.rresp || r_.last != s.rlast) {
                fail_changed("R", text(r_.data, r_.resp, r_.last),
                             text(s.rdata, s.rresp, s.rlast));
            }
        }
        if (reads_.size() == 0) {
            fail("R", "data that nobody asked for");
        }
        if (!r_.waits && !m.rready) {
            std::memcpy(r_.data.data(), s.rdata.data(), bus_bytes_);
            r_.resp = s.rresp;
            r_.last = s.rlast;
        }
        r_.waits = !m.rready;
        if (m.rready) {
            ++read_beats_;
            take_beat("R", reads_, s.rlast);
        }
    }

    void check_b(const AxiMaster& m, const AxiSlave& s) {
        if (b_.waits) {
            check_valid("B", s.bvalid);
            if (b_.resp != s.bresp) {
                fail_changed("B", "(" + std::to_string(b_.resp) + ",)",
                             "(" + std::to_string(s.bresp) + ",)");
            }
        }
        if (landed_ == 0) {
            fail("B", "response before the last beat of its burst");
        }
        b_ = {!m.bready, s.bresp};
        if (m.bready) {
            --landed_;
        }
    }

    // Check an address that is new or waited, and keep it in `before` for the next cycle.
    void check_address(const char* channel, Address& before, bool valid, const Address& now) {
        if (!before.waits) {
            check_burst(channel, now);
        } else {
            check_valid(channel, valid);
            if (before.addr != now.addr || before.len != now.len || before.size != now.size ||
                before.burst != now.burst) {
                fail_changed(channel, before.text(), now.text());
            }
        }
        before = now;
    }

    void check_burst(const char* channel, const Address& a) const {
        if (a.size != size_) {
            fail(channel, "size must be " + std::to_string(size_) + ", not " +
                              std::to_string(a.size));
        }
        if (a.burst != INCR) {
            fail(channel, "burst type must be " + std::to_string(INCR) + " (INCR), not " +
                              std::to_string(a.burst));
        }
        if (a.addr & (bus_bytes_ - 1)) {
            fail(channel, "address " + hex(a.addr) + " is not aligned to " +
                              std::to_string(bus_bytes_) + " bytes");
        }
        if (a.len > 255) {
            fail(channel, "length must be from 0 to 255, not " + std::to_string(a.len));
        }
        const unsigned count = (a.len + 1u) * bus_bytes_;
        if (count > max_burst_bytes_) {
            fail(channel, "burst of " + std::to_string(count) + " bytes, at most " +
                              std::to_string(max_burst_bytes_) + " allowed");
        }
        if (a.addr / BOUNDARY != (a.addr + count - 1) / BOUNDARY) {
            fail(channel, "burst of " + std::to_string(count) + " bytes at " + hex(a.addr) +
                              " crosses 4 KB");
        }
    }

    void check_valid(const char* channel, bool valid) const {
        if (!valid) {
            fail(channel, "valid dropped before ready");
        }
    }

    void check_outstanding(const char* channel, unsigned count) const {
        if (count > max_outstanding_) {
            fail(channel, std::to_string(count) + " bursts outstanding, at most " +
                              std::to_string(max_outstanding_) + " allowed");
        }
    }

    // Count a beat of the oldest burst; return whether the burst is complete.
    bool take_beat(const char* channel, Bursts& bursts, bool last) const {
        const unsigned left = bursts.front() - 1;
        if (last != (left == 0)) {
            fail(channel, std::string(channel) + "LAST " +
                              (last ? "up with " + std::to_string(left) + " beats to come"
                                    : "missing at the last beat"));
        }
        if (left) {
            bursts.front() = left;
        } else {
            bursts.pop();
        }
        return left == 0;
    }

    bool same(const Bytes& a, const Bytes& b) const {
        return std::memcmp(a.data(), b.data(), bus_bytes_) == 0;
    }

    [[noreturn]] void fail(const char* channel, const std::string& rule) const {
        throw AxiViolation(cycle_, channel, rule);
    }

    [[noreturn]] void fail_changed(const char* channel, const std::string& before,
                                   const std::string& now) const {
        fail(channel, "payload changed from " + before + " to " + now + " before ready");
    }

    static std::string hex(std::uint64_t value) {
        std::string digits;
        do {
            digits.insert(digits.begin(), "0123456789abcdef"[value & 15]);
        } while (value >>= 4);
        return "0x" + digits;
    }

    // The number in decimal whose bytes are given, lowest first.
    static std::string decimal(std::vector<std::uint8_t> bytes) {
        std::string digits;
        do {
            unsigned rest = 0;
            for (std::size_t i = bytes.size(); i-- > 0;) {
                rest = rest << 8 | bytes[i];
                bytes[i] = static_cast<std::uint8_t>(rest / 10);
                rest %= 10;
            }
            digits.insert(digits.begin(), static_cast<char>('0' + rest));
            while (!bytes.empty() && bytes.back() == 0) {
                bytes.pop_back();
            }
        } while (!bytes.empty());
        return digits;
    }

    std::string text(const Bytes& data, const std::string& middle, unsigned last) const {
        return "(" + decimal({data.begin(), data.begin() + bus_bytes_}) + ", " + middle + ", " +
               std::to_string(last) + ")";
    }

    std::string text(const Bytes& data, unsigned resp, unsigned last) const {
        return text(data, std::to_string(resp), last);
    }

    std::string text(const Bytes& data, const Strobes* strobes, unsigned last) const {
        std::vector<std::uint8_t> bytes;
        for (const std::uint64_t word : *strobes) {
            for (unsigned shift = 0; shift < 64; shift += 8) {
                bytes.push_back(static_cast<std::uint8_t>(word >> shift));
            }
        }
        return text(data, decimal(bytes), last);
    }

    unsigned bus_bytes_;
    unsigned size_ = 0;
    unsigned max_burst_bytes_;
    unsigned max_outstanding_;
    Address ar_, aw_;
    WriteBeat w_;
    ReadBeat r_;
    Response b_;
    Bursts reads_, writes_;
    unsigned landed_ = 0;  // writes with all their data, response not yet taken
    std::uint64_t cycle_ = 0;
    std::uint64_t read_bursts_ = 0;
    std::uint64_t read_beats_ = 0;
    std::uint64_t write_bursts_ = 0;
    std::uint64_t write_beats_ = 0;
};

}  // namespace trirow
