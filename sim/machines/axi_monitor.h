// The rules of AXI4, and the promises of docs/dram.md, that a port of Dram keeps. DRAM is the width of its bus in bytes.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

enum Rule : uint32_t {
    AR_DROPPED, AW_DROPPED, W_DROPPED, AR_CHANGED, AW_CHANGED, W_CHANGED, CROSSES, ALIGNED, SIZE, KIND, LENGTH, WRITE_ID,
    WLAST, W_BEFORE_AW, W_WAITS, R_WAITS, B_WAITS, RULES
};

constexpr const char* RULE_NAMES[RULES] = {
    "ARVALID was dropped before ARREADY", "AWVALID was dropped before AWREADY", "WVALID was dropped before WREADY",
    "AR changed while ARVALID waited", "AW changed while AWVALID waited", "W changed while WVALID waited",
    "a burst crosses 4,096 bytes", "an address is no multiple of the bus", "SIZE is not the width of the bus",
    "BURST is not INCR", "a burst has more than 64 beats", "AWID is not 0", "WLAST is not at the last beat alone",
    "W has a beat of no burst", "a write was asked for before its data were there",
    "RREADY fell while a read was under way", "BREADY fell while a write was under way"};

class Monitor {
    static constexpr uint32_t LONGEST = 64;   // Most beats of a burst.
    static constexpr uint32_t PATIENCE = 32;  // Cycles in which words that are there become a beat.

    std::vector<uint8_t> held[3];   // A payload of AR, AW and W that was not taken.
    std::deque<uint32_t> owed;      // Beats that bursts on AW still lack.
    uint64_t reads = 0, writes = 0; // Bursts without their last beat, or without their answer.
    uint32_t waited = 0;            // Cycles without a beat on W.

    void require(bool kept, Rule rule) { broken[rule] += !kept; }

    // Whether a new payload stands on a channel.
    bool stands(uint32_t channel, bool valid, bool ready, const std::vector<uint8_t>& payload) {
        auto& before = held[channel];
        bool fresh = valid && before.empty();
        if (!before.empty()) {
            require(valid, Rule(AR_DROPPED + channel));
            require(!valid || payload == before, Rule(AR_CHANGED + channel));
        }
        before = valid && !ready ? payload : std::vector<uint8_t>();
        return fresh;
    }

    void burst(uint32_t address, uint32_t beats, uint32_t size, uint32_t kind) {
        require(address >> 12 == (address + beats * DRAM - 1) >> 12, CROSSES);
        require(address % DRAM == 0, ALIGNED);
        require(1u << size == DRAM, SIZE);
        require(kind == 1, KIND);
        require(beats <= LONGEST, LENGTH);
    }

public:
    std::array<uint64_t, RULES> broken{};  // How often each rule was broken.
    bool lenient = false;                  // A response was too short, so that the port may hold up R to fill it.

    uint64_t violations() const {
        uint64_t sum = 0;
        for (uint64_t count : broken) sum += count;
        return sum;
    }

    // The first rule that was broken; RULES if none was.
    uint32_t first() const {
        return std::find_if(broken.begin(), broken.end(), [](uint64_t count) { return count; }) - broken.begin();
    }

    // See the present cycle. Payloads are those of AR, AW and W.
    template <class Top>
    void watch(const Top& top, const std::vector<uint8_t>& ar, const std::vector<uint8_t>& aw,
               const std::vector<uint8_t>& w) {
        stands(0, top.m_axi_arvalid, top.m_axi_arready, ar);
        if (stands(1, top.m_axi_awvalid, top.m_axi_awready, aw)) owed.push_back(top.m_axi_awlen + 1u);
        stands(2, top.m_axi_wvalid, top.m_axi_wready, w);
        require(!reads || top.m_axi_rready || lenient, R_WAITS);
        require(!writes || top.m_axi_bready, B_WAITS);
        require(!top.m_axi_wvalid || !owed.empty(), W_BEFORE_AW);
        waited = top.m_axi_wvalid || owed.empty() ? 0 : waited + 1;
        require(waited != PATIENCE, W_WAITS);
        reads -= reads && top.m_axi_rvalid && top.m_axi_rready && top.m_axi_rlast;
        writes -= writes && top.m_axi_bvalid && top.m_axi_bready;
        if (top.m_axi_arvalid && top.m_axi_arready) {
            burst(top.m_axi_araddr, top.m_axi_arlen + 1u, top.m_axi_arsize, top.m_axi_arburst);
            reads++;
        }
        if (top.m_axi_awvalid && top.m_axi_awready) {
            burst(top.m_axi_awaddr, top.m_axi_awlen + 1u, top.m_axi_awsize, top.m_axi_awburst);
            require(top.m_axi_awid % 2 == 0, WRITE_ID);  // Above is the number of a manager.
            writes++;
        }
        if (top.m_axi_wvalid && top.m_axi_wready && !owed.empty()) {
            bool ends = --owed.front() == 0;
            require(ends == bool(top.m_axi_wlast), WLAST);
            if (ends) owed.pop_front();
        }
    }
};
