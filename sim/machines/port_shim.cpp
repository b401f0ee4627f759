// The Verilated port of Dram alone between random ranges and a memory in C++, behind a C interface for ctypes.
// DRAM is the width of the bus and WORD that of a word in bytes, TAG the number of bits of a range's tag.

#include "Vtop.h"
#include "verilated.h"

#include "dram.h"

#include <algorithm>
#include <array>
#include <memory>

#define AT(stream, wire) stream##___05F##wire  // Verilator's name of STREAM__WIRE.

namespace {

constexpr uint32_t SPACE = 1 << 20;     // Bytes of the memory.
constexpr uint32_t HALF = 1 << 18;      // Bytes from the port's base on that are read, or written, by turns.
constexpr uint32_t GROUP = DRAM > WORD ? DRAM / WORD : 1;  // Words of a beat.
constexpr uint32_t HANG = 100000;       // Cycles without a word or a range after which nothing will come.
constexpr uint32_t STALLS[] = {0, 6554, 32768}, LATENCIES[] = {1, 5, 40, 400};

template <class Port> void put(Port& port, uint32_t at, uint32_t width, uint64_t value) {
    auto* bytes = reinterpret_cast<uint8_t*>(&port);
    for (uint32_t k = 0; k < width; k++, at++)
        bytes[at / 8] = (bytes[at / 8] & ~(1 << at % 8)) | (value >> k & 1) << at % 8;
}

template <class Port> uint64_t get(const Port& port, uint32_t at, uint32_t width) {
    auto* bytes = reinterpret_cast<const uint8_t*>(&port);
    uint64_t value = 0;
    for (uint32_t k = 0; k < width; k++, at++) value |= uint64_t(bytes[at / 8] >> at % 8 & 1) << k;
    return value;
}

struct Range {
    uint32_t first, count;
    bool last;
};

struct Given {  // What a reader gives at once.
    std::vector<uint8_t> bytes;
    bool last;
};

struct Counts {  // sim.machines.port
    uint64_t cycles, ranges, reads, writes, bytes_read, bytes_written, differing, errors, resets, hangs;
};

struct Bench {
    VerilatedContext context;
    std::unique_ptr<Vtop> top;
    Dram dram;
    std::vector<uint8_t> model;
    std::deque<Range> ranges[3];        // Of words, of tiles, and those that are written.
    std::deque<Given> expected[2];
    std::deque<std::vector<uint8_t>> words;
    bool offered[3] = {}, word_offered = false;
    uint64_t state, answers = 0;        // Answers that must still come.
    uint32_t base = 0, pause = 0, late = 0, still = 0;
    Counts counts{};

    explicit Bench(uint64_t seed) : model(SPACE), state(seed * 0x9E3779B97F4A7C15ULL + 1) {
        dram.seed(seed + 1);
        for (uint8_t& byte : model) byte = random();
        dram.move(0, model.data(), SPACE, true);
        top = std::make_unique<Vtop>(&context, "dram_port");
        context.fatalOnError(false);
        top->rst = 1;
        for (int k = 0; k < 3; k++) edge();
        top->rst = 0;
    }

    uint32_t random() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return state * 0x2545F4914F6CDD1DULL >> 32;
    }

    bool rolls(uint32_t of_65536) { return random() >> 16 < of_65536; }

    void edge() {
        top->clk = 0;
        top->eval();
        top->clk = 1;
        top->eval();
        counts.cycles++;
    }

    void offer(bool& valid, bool there) { valid = valid || (there && !rolls(pause)); }

    void show(const Range& range, IData* payload) {
        put(*payload, 0, 32, range.first);
        put(*payload, 32, 32, range.count);
        put(*payload, 64 + TAG, 1, range.last);
    }

    void cycle() {
        for (int k = 0; k < 3; k++) offer(offered[k], !ranges[k].empty());
        if (late) late--;
        offer(word_offered, !words.empty() && !late);
        if (offered[0]) show(ranges[0].front(), top->AT(words_range, payload).data());
        if (offered[1]) show(ranges[1].front(), top->AT(tiles_range, payload).data());
        if (offered[2]) show(ranges[2].front(), top->AT(write_range, payload).data());
        top->AT(words_range, valid) = offered[0];
        top->AT(tiles_range, valid) = offered[1];
        top->AT(write_range, valid) = offered[2];
        if (word_offered) std::memcpy(&top->AT(write_word, payload), words.front().data(), WORD);
        top->AT(write_word, valid) = word_offered;
        top->AT(words, ready) = !rolls(pause);
        top->AT(tiles, ready) = !rolls(pause);
        dram.drive(*top);
        top->clk = 0;
        top->eval();
        dram.watch(*top);
        still++;
        bool taken[3] = {bool(top->AT(words_range, ready)), bool(top->AT(tiles_range, ready)), bool(top->AT(write_range, ready))};
        for (int k = 0; k < 3; k++)
            if (offered[k] && taken[k] && !top->reset) {
                ranges[k].pop_front();
                offered[k] = false;
                still = 0;
            }
        if (word_offered && top->AT(write_word, ready) && !top->reset) {
            words.pop_front();
            word_offered = false;
            still = 0;
            if (rolls(256)) late = 100;
        }
        if (!top->reset) {
            if (top->AT(words, valid) && top->AT(words, ready))
                compare(0, &top->AT(words, payload), 1, get(top->AT(words, payload), 8 * WORD, 1));
            if (top->AT(tiles, valid) && top->AT(tiles, ready)) {
                uint32_t bits = 1;
                while (GROUP >> bits) bits++;
                compare(1, &top->AT(tiles, payload), get(top->AT(tiles, payload), 8 * WORD * GROUP, bits),
                        get(top->AT(tiles, payload), 8 * WORD * GROUP + bits, 1));
            }
            counts.errors += top->error & 1;
            if (top->write_done) answers ? answers-- : counts.differing++;
        }
        top->clk = 1;
        top->eval();
        counts.cycles++;
    }

    void compare(int reader, const void* payload, uint32_t count, bool last) {
        still = 0;
        if (expected[reader].empty()) {
            counts.differing += count * WORD;
            return;
        }
        const Given& right = expected[reader].front();
        auto* bytes = static_cast<const uint8_t*>(payload);
        uint32_t size = right.bytes.size();
        if (count * WORD != size || last != right.last) counts.differing += size;
        else for (uint32_t k = 0; k < size; k++) counts.differing += bytes[k] != right.bytes[k];
        counts.bytes_read += size;
        expected[reader].pop_front();
    }

    // Ranges of one sequence within a half of the words.
    void draw(int kind, uint32_t half) {
        constexpr uint32_t lengths[] = {1, 2, 3, 5, 17, 66, 300};
        uint32_t count = random() % 6;
        for (uint32_t k = 0; k < count; k++) {
            uint32_t length = lengths[random() % 7], first = half * (HALF / WORD) + random() % (HALF / WORD - length);
            Range range{first, length, bool(random() & 1)};
            ranges[kind].push_back(range);
            counts.ranges++;
            uint8_t* bytes = &model[base + first * WORD];
            if (kind == 2) {
                answers += range.last;
                for (uint32_t word = 0; word < length; word++) {
                    for (uint32_t byte = 0; byte < WORD; byte++) bytes[word * WORD + byte] = random();
                    words.emplace_back(bytes + word * WORD, bytes + (word + 1) * WORD);
                }
                continue;
            }
            for (uint32_t word = 0; word < length;) {
                uint32_t step = kind ? std::min(length - word, GROUP - (first + word) % GROUP) : 1;
                bool ends = word + step == length;
                expected[kind].push_back({{bytes + word * WORD, bytes + (word + step) * WORD}, ends && range.last});
                word += step;
            }
        }
    }

    bool done() const {
        bool taken = words.empty() && !answers;
        for (auto& one : ranges) taken &= one.empty();
        for (auto& one : expected) taken &= one.empty();
        return taken && top->idle;
    }

    // Forget all, as the port does at a reset; what is in the memory is right then.
    bool reset() {
        for (auto& one : ranges) one.clear();
        for (auto& one : expected) one.clear();
        words.clear();
        std::fill_n(offered, 3, false);
        word_offered = false;
        answers = 0;
        counts.resets++;
        top->reset = 1;
        cycle();
        top->reset = 0;
        cycle();
        cycle();
        for (still = 0; !top->idle && still < HANG;) cycle();
        dram.move(0, model.data(), SPACE, false);
        return still < HANG;
    }

    // Random ranges of all three sequences to their end, or to a reset; whether they ended.
    bool phase() {
        base = random() % 128 * 4096;
        top->base = base;
        pause = STALLS[random() % 3];
        dram.stall = STALLS[random() % 3];
        dram.latency = LATENCIES[random() % 4];
        dram.mixed = random() & 1;
        uint32_t half = random() & 1, left = random() % 8 ? ~0U : random() % 600;
        for (int kind = 0; kind < 3; kind++) draw(kind, kind == 2 ? 1 - half : half);
        for (still = 0; !done() && still < HANG && left; left--) cycle();
        if (!left) return reset();
        for (int k = 0; k < 3; k++) cycle();  // words too many would come now
        std::vector<uint8_t> found(HALF);
        uint32_t address = base + (1 - half) * HALF;
        dram.move(address, found.data(), HALF, false);
        for (uint32_t k = 0; k < HALF; k++) counts.differing += found[k] != model[address + k];
        return still < HANG;
    }
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Bench* port_create(uint64_t seed) { return new Bench(seed); }

void port_destroy(Bench* bench) {
    Verilated::threadContextp(&bench->context);
    bench->top->final();
    delete bench;
}

// Run until the memory has taken this many bursts, or until the port hangs.
void port_run(Bench* bench, uint64_t bursts, Counts* counts) {
    const uint64_t* moved = bench->dram.bursts;
    uint64_t end = moved[0] + moved[1] + moved[2] + bursts;
    while (!bench->counts.hangs && moved[0] + moved[1] + moved[2] < end) bench->counts.hangs += !bench->phase();
    bench->counts.reads = moved[0] + moved[1];
    bench->counts.writes = moved[2];
    bench->counts.bytes_written = bench->dram.bytes_written;
    *counts = bench->counts;
}

// How often a rule was broken, and its name; null behind the last one.
uint64_t port_broken(Bench* bench, uint32_t rule) { return bench->dram.monitor.broken[rule]; }

const char* port_rule(uint32_t rule) { return rule < RULES ? RULE_NAMES[rule] : nullptr; }
}
