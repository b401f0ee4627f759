// The Verilated NNP behind a C interface, for ctypes: message bytes in and out, registers, whole runs of cycles.
// BEAT is the width of a message beat in bytes. DRAM is the width of the bus to the memory outside, if there is one, in
// bytes. Machines may stand in a row: each sends its INPUT messages to the next
// one, and the first one drives the clock of all.

#include "Vtop.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "control_port.h"
#ifdef DRAM
#include "dram.h"
#endif

namespace {

// Everything that a run may be repeated with: the generator of gaps and stalls.
struct Dice {
    uint64_t state;
    bool roll(uint32_t of_65536) {  // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return (state * 0x2545F4914F6CDD1DULL >> 48) < of_65536;
    }
};

struct Beat {
    uint8_t bytes[BEAT];
    bool last;
};

// A machine of a row. Machines may be of several libraries, which see each other only through this.
struct Stage {
    Stage* first = nullptr;   // The first machine of the row.
    Stage* behind = nullptr;  // The machine that takes this one's INPUT messages.
    // First half of a cycle. `beat` is what the machine before offers, or null; returns whether it is taken.
    virtual bool low(const Beat* beat) = 0;
    virtual void high() = 0;
};

enum class From { NOBODY, HOST, BEFORE };

struct Machine : Stage {
    VerilatedContext context;
    std::unique_ptr<Vtop> top;
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace;
#endif
    std::deque<Beat> input;
    std::deque<std::vector<uint8_t>> output;  // The last one is still coming in.
    std::vector<uint8_t> held;                // A beat that was offered and not taken, with its TLAST.
    uint64_t trace_from = 0;                  // Cycle at which the waveform begins.
    uint64_t cycles = 0, quiet = 0;
    ControlPort port;
    Dice dice{1};
#ifdef DRAM
    Dram dram;
#endif
    uint32_t gap = 0, stall = 0;
    bool last = false;                         // The offered beat ends its message.
    From offered = From::NOBODY;               // Who offers a beat that was not taken yet.
    From inside = From::NOBODY;                // Who has sent a part of a message.
    bool took = false, broken = false;
    bool resetting = true;                     // The machine is in reset.
    bool passing = false, sending = false;     // The present message out is for the machine behind; it has begun.

    Machine() : output(1) {
        first = this;
        context.fatalOnError(false);
#if VM_TRACE
        context.traceEverOn(true);
#endif
        top = std::make_unique<Vtop>(&context, "nnp");
        top->clk = 0;
        for (int k = 0; k < 4; k++) {
            top->rst = k < 3;  // The machine sees it one cycle later.
            cycle();
        }
        resetting = false;
    }

    void evaluate() {
        top->eval();
#if VM_TRACE
        if (trace && cycles >= trace_from) trace->dump(context.time());
#endif
        context.timeInc(1);
    }

    void cycle() {
        first->low(nullptr);
        first->high();
    }

    // Messages of the machine before go first; none begins inside another one.
    bool low(const Beat* before) override {
        if (offered == From::NOBODY) {
            From next = inside != From::NOBODY ? inside : before ? From::BEFORE : From::HOST;
            bool there = next == From::BEFORE ? before != nullptr : !input.empty();
            if (there && !resetting && !dice.roll(gap)) offered = next;
        }
        top->s_axis_tvalid = offered != From::NOBODY;
        if (offered != From::NOBODY) {
            const Beat& sent = offered == From::BEFORE ? *before : input.front();
            std::memcpy(&top->s_axis_tdata, sent.bytes, BEAT);
            top->s_axis_tlast = sent.last;
            last = sent.last;
        }
        // The stream to the machine behind comes from registers, so it has its value before this evaluation.
        bool taken = pass();
        top->m_axis_tready = passing && behind ? taken : !dice.roll(stall);
#ifdef DRAM
        dram.drive(*top);
#endif
        top->clk = 0;
        evaluate();
        took = offered != From::NOBODY && top->s_axis_tready && !resetting;
        return took && offered == From::BEFORE;
    }

    // Let the machine behind do its half of the cycle; whether it takes the present beat.
    bool pass() {
        if (!behind) return false;
        constexpr uint8_t input_kind = 6;  // spec.messages
        bool there = top->m_axis_tvalid && !resetting;
        Beat offer;
        std::memcpy(offer.bytes, &top->m_axis_tdata, BEAT);
        offer.last = top->m_axis_tlast;
        if (there && !sending) passing = offer.bytes[0] == input_kind;
        return behind->low(there && passing ? &offer : nullptr);
    }

    void high() override {
        bool came = top->m_axis_tvalid && !resetting;
        watch(came);
        if (came && top->m_axis_tready) {
            if (!passing) collect();
            sending = !top->m_axis_tlast;
            passing &= sending;
        }
        bool moves = took || came;
#ifdef DRAM
        if (!resetting) dram.watch(*top);
        moves |= dram.busy(*top);
#endif
        quiet = moves ? 0 : quiet + 1;
        top->clk = 1;
        evaluate();
        cycles++;
        if (took) {
            if (offered == From::HOST) input.pop_front();
            inside = last ? From::NOBODY : offered;
            offered = From::NOBODY;
        }
        if (behind) behind->high();
    }

    std::vector<uint8_t> beat() const {
        std::vector<uint8_t> bytes(BEAT + 1);
        std::memcpy(bytes.data(), &top->m_axis_tdata, BEAT);
        bytes[BEAT] = top->m_axis_tlast;
        return bytes;
    }

    // An offered beat stays as it is until it is taken.
    void watch(bool came) {
        if (!held.empty() && !resetting) broken |= !came || beat() != held;
        held.clear();
        if (came && !top->m_axis_tready) held = beat();
    }

    void collect() {
        auto bytes = beat();
        output.back().insert(output.back().end(), bytes.begin(), bytes.end() - 1);
        if (bytes[BEAT]) output.emplace_back();
    }

    // Outputs of the control port after a change of its inputs.
    void settle() {
        top->clk = 0;
        top->eval();
    }
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Machine* nnp_create() { return new Machine; }

void nnp_destroy(Machine* machine) {
#if VM_TRACE
    if (machine->trace) machine->trace->close();
#endif
    Verilated::threadContextp(&machine->context);  // Scopes leave the context of the thread, not the machine's own.
    machine->top->final();
    delete machine;
}

// Write a waveform from cycle `from` on; 0 where the library was built without.
int nnp_trace(Machine* machine, const char* path, uint64_t from) {
#if VM_TRACE
    machine->trace_from = from;
    machine->trace = std::make_unique<VerilatedVcdC>();
    machine->top->trace(machine->trace.get(), 99);
    machine->trace->open(path);
    return 1;
#else
    return 0;
#endif
}

// Idle and stalled cycles of the two streams, each with a probability in 1/65536.
void nnp_random(Machine* machine, uint64_t seed, uint32_t gap, uint32_t stall) {
    machine->dice.state = seed * 0x9E3779B97F4A7C15ULL + 1;
    machine->gap = gap;
    machine->stall = stall;
}

// Queue one message of whole beats; its last beat carries TLAST.
void nnp_send(Machine* machine, const uint8_t* bytes, uint64_t count) {
    for (uint64_t k = 0; k < count; k += BEAT) {
        machine->input.emplace_back();
        std::memcpy(machine->input.back().bytes, bytes + k, BEAT);
        machine->input.back().last = k + BEAT == count;
    }
}

// Bytes of the first whole message that has come out, or 0.
uint64_t nnp_pending(Machine* machine) { return machine->output.size() < 2 ? 0 : machine->output.front().size(); }

void nnp_receive(Machine* machine, uint8_t* bytes) {
    std::memcpy(bytes, machine->output.front().data(), machine->output.front().size());
    machine->output.pop_front();
}

// Bytes of a message that has not ended.
uint64_t nnp_partial(Machine* machine) { return machine->output.back().size(); }

uint32_t nnp_read(Machine* machine, uint32_t address) { return machine->port.read(*machine, address); }

void nnp_write(Machine* machine, uint32_t address, uint32_t value) { machine->port.write(*machine, address, value); }

void nnp_step(Machine* machine, uint64_t cycles) {
    while (cycles--) machine->cycle();
}

// Run until no beat has moved for `quiet` cycles, or for `blocked` where some wait to be taken; 0 if that takes more
// than `most` cycles.
int nnp_settle(Machine* machine, uint64_t quiet, uint64_t blocked, uint64_t most) {
    machine->quiet = 0;
    for (uint64_t end = machine->cycles + most; machine->quiet < (machine->input.empty() ? quiet : blocked);
         machine->cycle())
        if (machine->cycles >= end) return 0;
    return 1;
}

// Run until no program runs, or one waits for input while none is queued and no beat has moved for a while, or for
// `most` cycles; STATUS.
uint32_t nnp_run(Machine* machine, uint64_t most) {
    constexpr uint32_t status = 4, running = 1, wait_input = 4;  // spec.registers
    machine->quiet = 0;
    for (uint64_t end = machine->cycles + most;;) {
        uint32_t got = machine->port.read(*machine, status);
        bool starved = got & wait_input && machine->input.empty() && machine->quiet > 256;
        if (!(got & running) || starved || machine->cycles >= end) return got;
        nnp_step(machine, 8);
    }
}

// Send INPUT messages to the machine `next`, a Stage, which may be of another library.
void nnp_precede(Machine* machine, void* next) {
    machine->behind = static_cast<Stage*>(next);
    for (Stage* stage = machine->behind; stage; stage = stage->behind) stage->first = machine->first;
}

uint64_t nnp_cycles(Machine* machine) { return machine->cycles; }

uint64_t nnp_queued(Machine* machine) { return machine->input.size(); }

// 1: an output beat changed or went before it was taken; 2: the control port did not answer; 4: an assertion failed.
int nnp_faults(Machine* machine) {
    int violated = 0;
#ifdef DRAM
    violated = machine->dram.monitor.violations() > 0;
#endif
    return machine->broken + 2 * (machine->port.overruns > 0) + 4 * machine->context.gotError() + 8 * violated;
}

#ifdef DRAM
// Cycles from an address to its first beat, probability of a stall in 1/65536, whether beats of two IDs come in turns.
void nnp_dram(Machine* machine, uint64_t seed, uint32_t latency, uint32_t stall, uint32_t mixed) {
    machine->dram.seed(seed);
    machine->dram.latency = latency;
    machine->dram.stall = stall;
    machine->dram.mixed = mixed;
}

// Answer burst `number` of one kind of access, or of all, counted from power-up, wrongly.
void nnp_dram_fault(Machine* machine, uint64_t number, uint32_t fault, uint32_t access) {
    machine->dram.fault_at = number;
    machine->dram.fault = static_cast<Fault>(fault);
    machine->dram.counted = static_cast<Access>(access);
    machine->dram.failed = {0, 0, Access::ANY};
}

// Number of bursts of an access since power-up.
uint64_t nnp_dram_bursts(Machine* machine, uint32_t access) { return machine->dram.bursts[access]; }

// Address, beats and access of the burst that was answered wrongly; no beats if none was.
void nnp_dram_failed(Machine* machine, uint32_t* found) {
    const auto& failed = machine->dram.failed;
    found[0] = failed.address, found[1] = failed.beats, found[2] = static_cast<uint32_t>(failed.access);
}

// Number of bursts under way.
uint64_t nnp_dram_owed(Machine* machine) { return machine->dram.owed(); }

// The first rule of the port that was broken, or null.
const char* nnp_dram_rule(Machine* machine) {
    uint32_t rule = machine->dram.monitor.first();
    return rule == RULES ? nullptr : RULE_NAMES[rule];
}

void nnp_dram_answer(Machine* machine) { machine->dram.forget_silence(); }

void nnp_dram_move(Machine* machine, uint32_t address, uint8_t* bytes, uint64_t count, uint32_t into) {
    machine->dram.move(address, bytes, count, into);
}

uint64_t nnp_dram_bytes(Machine* machine, uint32_t written) {
    return written ? machine->dram.bytes_written : machine->dram.bytes_read;
}
#endif
}
