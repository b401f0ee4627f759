// The memory outside the chip, at the machine's AXI4 port, with a latency and stalls, and a monitor of the protocol.
// DRAM is the width of the data bus in bytes, and IDS the number of IDs, 2 for each manager. A read takes its bytes when
// they leave, a write puts them in when it is answered: a machine that orders accesses to the same bytes too late gets
// wrong ones.

#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <vector>

#include "axi_monitor.h"

#ifndef IDS
#define IDS 2
#endif

enum class Fault : uint32_t { NONE, SLVERR, DECERR, EARLY, LATE, SILENT };  // sim.machines.library

enum class Access : uint32_t { WORDS, TILES, WRITE, ANY };  // Reads by the low bit of their ID.

class Dram {
    struct Burst {
        uint32_t address, id, beats;
        uint64_t due;      // Cycle of the first beat, or of the answer.
        Fault fault;
        uint32_t moved = 0;
        std::vector<uint8_t> bytes, strobes;  // Of a write.
    };

    std::unordered_map<uint32_t, std::vector<uint8_t>> pages;
    std::deque<Burst> reads[IDS], writes, answers;  // Reads by their ID.
    uint64_t now = 0, state = 1;
    bool r_valid = false, b_valid = false;
    uint32_t r_id = 0;

    bool roll(uint32_t of_65536) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return (state * 0x2545F4914F6CDD1DULL >> 48) < of_65536;
    }

    uint8_t& byte(uint32_t address) {
        auto& page = pages[address >> 12];
        if (page.empty()) page.resize(4096);
        return page[address & 4095];
    }

    // What is wrong with the response to a burst.
    Fault fault_of(uint32_t address, uint32_t beats, Access access) {
        bool any = counted == Access::ANY;
        uint64_t number = any ? bursts[0] + bursts[1] + bursts[2] : bursts[uint32_t(access)];
        bursts[uint32_t(access)]++;
        if (number != fault_at || (!any && counted != access)) return Fault::NONE;
        failed = {address, beats, access};
        return fault;
    }

    uint32_t response(const Burst& burst) const {
        return burst.fault == Fault::SLVERR ? 2 : burst.fault == Fault::DECERR ? 3 : 0;
    }

    uint32_t given(const Burst& burst) const {  // Beats of the response.
        if (burst.fault == Fault::EARLY && burst.beats > 1) return burst.beats - 1;
        return burst.beats + 2 * (burst.fault == Fault::LATE);
    }

public:
    uint32_t latency = 40, stall = 0;
    bool mixed = false;           // Beats of bursts of different IDs may come in turns.
    uint64_t fault_at = ~0ULL;    // Number of the burst whose response is wrong, among those that are `counted`.
    Fault fault = Fault::NONE;
    Access counted = Access::ANY;
    uint64_t bursts[3] = {};      // Number of bursts by their access.
    struct { uint32_t address, beats; Access access; } failed = {0, 0, Access::ANY};  // The one with the wrong response.
    Monitor monitor;
    uint64_t bytes_read = 0, bytes_written = 0;

    void seed(uint64_t value) { state = value * 0x9E3779B97F4A7C15ULL + 1; }

    void move(uint32_t address, uint8_t* bytes, uint64_t count, bool into) {
        for (uint64_t k = 0; k < count; k++) (into ? byte(address + k) = bytes[k] : bytes[k] = byte(address + k));
    }

    void forget_silence() {  // A response that never comes: what the memory answers after a reset.
        auto forget = [](std::deque<Burst>& queue) {
            for (Burst& burst : queue)
                if (burst.fault == Fault::SILENT) burst.fault = Fault::NONE;
        };
        for (auto& queue : reads) forget(queue);
        forget(answers), forget(writes);
    }

    // Number of bursts whose response has not ended.
    uint64_t owed() const {
        uint64_t sum = writes.size() + answers.size();
        for (auto& queue : reads) sum += queue.size();
        return sum;
    }

    // Whether it will take what the port offers, or owes a response that will come: not behind one that does not.
    template <class Top> bool busy(const Top& top) const {
        if (stall < 65536 && (top.m_axi_arvalid || top.m_axi_awvalid || top.m_axi_wvalid)) return true;
        auto comes = [](const std::deque<Burst>& queue) {
            return !queue.empty() && queue.front().fault != Fault::SILENT;
        };
        return comes(answers) || std::any_of(std::begin(reads), std::end(reads), comes);
    }

    // Drive the inputs of the port for the present cycle.
    template <class Top> void drive(Top& top) {
        top.m_axi_arready = !roll(stall);
        top.m_axi_awready = !roll(stall);
        top.m_axi_wready = !writes.empty() && !roll(stall);  // It takes data after their address.
        if (!r_valid) choose();
        top.m_axi_rvalid = r_valid;
        if (r_valid) {
            Burst& burst = reads[r_id].front();
            uint8_t data[DRAM];
            for (uint32_t k = 0; k < DRAM; k++) data[k] = byte(burst.address + burst.moved * DRAM + k);
            std::memcpy(&top.m_axi_rdata, data, DRAM);
            top.m_axi_rid = r_id;
            top.m_axi_rresp = burst.moved ? 0 : response(burst);
            top.m_axi_rlast = burst.moved + 1 == given(burst);
        }
        b_valid = b_valid || (!answers.empty() && answers.front().due <= now && answers.front().fault != Fault::SILENT
                              && !roll(stall));
        top.m_axi_bvalid = b_valid;
        if (b_valid) {
            top.m_axi_bresp = response(answers.front());
            top.m_axi_bid = answers.front().id;
        }
    }

    // See what moves in the present cycle.
    template <class Top> void watch(Top& top) {
        std::vector<uint8_t> ar(6), aw(6), w(2 * DRAM + 1);
        std::memcpy(ar.data(), &top.m_axi_araddr, 4);
        ar[4] = top.m_axi_arlen;
        ar[5] = top.m_axi_arid;
        std::memcpy(aw.data(), &top.m_axi_awaddr, 4);
        aw[4] = top.m_axi_awlen;
        aw[5] = top.m_axi_awid;
        uint64_t strobes = 0;
        std::memcpy(&strobes, &top.m_axi_wstrb, (DRAM + 7) / 8);
        std::memcpy(w.data(), &top.m_axi_wdata, DRAM);
        for (uint32_t k = 0; k < DRAM; k++) w[DRAM + k] = strobes >> k & 1;
        w[2 * DRAM] = top.m_axi_wlast;
        monitor.lenient = fault == Fault::EARLY && failed.beats;
        monitor.watch(top, ar, aw, w);
        if (r_valid && top.m_axi_rready) {
            Burst& burst = reads[r_id].front();
            bytes_read += DRAM;
            if (++burst.moved == given(burst)) reads[r_id].pop_front();
            r_valid = false;
        }
        if (b_valid && top.m_axi_bready) {
            Burst& burst = answers.front();
            for (uint32_t k = 0; k < burst.bytes.size(); k++)
                if (burst.strobes[k]) byte(burst.address + k) = burst.bytes[k], bytes_written++;
            answers.pop_front();
            b_valid = false;
        }
        if (top.m_axi_arvalid && top.m_axi_arready) {
            uint32_t id = top.m_axi_arid, beats = top.m_axi_arlen + 1u;
            reads[id % IDS].push_back({top.m_axi_araddr, id, beats, now + latency,
                                       fault_of(top.m_axi_araddr, beats, Access(id & 1))});
        }
        if (top.m_axi_wvalid && top.m_axi_wready) {
            Burst& burst = writes.front();
            burst.bytes.insert(burst.bytes.end(), w.begin(), w.begin() + DRAM);
            burst.strobes.insert(burst.strobes.end(), w.begin() + DRAM, w.end() - 1);
            if (++burst.moved == burst.beats) {
                burst.due = now + latency;
                answers.push_back(burst);
                writes.pop_front();
            }
        }
        if (top.m_axi_awvalid && top.m_axi_awready) {
            uint32_t beats = top.m_axi_awlen + 1u;
            writes.push_back({top.m_axi_awaddr, uint32_t(top.m_axi_awid), beats, 0,
                              fault_of(top.m_axi_awaddr, beats, Access::WRITE)});
        }
        now++;
    }

private:
    // The ID of the burst under way, or else of the oldest one where there are several managers.
    uint32_t present() const {
        uint32_t id = r_id;
        if (IDS == 2 || mixed || (!reads[id].empty() && reads[id].front().moved)) return id;
        for (uint32_t k = 0; k < IDS; k++)
            if (!reads[k].empty() && (reads[id].empty() || reads[k].front().due < reads[id].front().due)) id = k;
        return id;
    }

    // Find the next beat to read, of the burst under way or of one whose time has come.
    void choose() {
        r_id = present();
        for (uint32_t k = 0; k < IDS; k++) {
            uint32_t id = (mixed && roll(32768)) || k ? (r_id + (k ? k : 1)) % IDS : r_id;
            bool inside = !reads[r_id].empty() && reads[r_id].front().moved;
            if (inside && !mixed) id = r_id;
            if (reads[id].empty() || reads[id].front().due > now || reads[id].front().fault == Fault::SILENT) continue;
            if (roll(stall)) return;
            r_id = id;
            r_valid = true;
            return;
        }
    }
};
