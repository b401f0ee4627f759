// The Verilated trainer behind a C interface, for ctypes: programs, registers, bytes of server memory, runs to their end.
// DRAM is the width of the memory's bus in bytes, WATCHED the number of signals of the port `busy` that are counted.

#include "Vtop.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

#include <algorithm>
#include <memory>

#include "control_port.h"
#include "dram.h"

namespace {

struct Chip {
    VerilatedContext context;
    std::unique_ptr<Vtop> top;
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace;
#endif
    uint64_t trace_from = 0;  // Cycle at which the waveform begins.
    uint64_t cycles = 0, running = 0;
    uint64_t busy[WATCHED] = {};
    uint64_t overruns = 0;  // Words of a program that were not taken.
    ControlPort port;
    Dram dram;
    bool resetting = true;

    Chip() {
        context.fatalOnError(false);
#if VM_TRACE
        context.traceEverOn(true);
#endif
        top = std::make_unique<Vtop>(&context, "nnp");
        top->clk = 0;
        for (int k = 0; k < 4; k++) {
            top->rst = k < 3;  // The chip sees it one cycle later.
            cycle();
        }
        resetting = false;
    }

    void settle() {
        top->clk = 0;
        top->eval();
    }

    void passed() {
#if VM_TRACE
        if (trace && cycles >= trace_from) trace->dump(context.time());
#endif
        context.timeInc(1);
    }

    void cycle() {
        dram.drive(*top);
        settle();
        passed();
        if (!resetting) {
            running += top->watch & 1;
            for (uint32_t k = 0; k < WATCHED; k++) busy[k] += top->busy >> k & 1;
            dram.watch(*top);
        }
        top->clk = 1;
        top->eval();
        passed();
        cycles++;
    }

    // Give one word of a program, of 128 bits in four parts, low ones first. Verilator writes __ of a name as ___05F.
    void load(const uint32_t* word, bool last) {
        for (int k = 0; k < 4; k++) top->load___05Fpayload[k] = word[k];
        top->load___05Fpayload[4] = last;
        top->load___05Fvalid = 1;
        for (int k = 0; k < ControlPort::PATIENCE; k++) {
            settle();
            bool taken = top->load___05Fready;
            cycle();
            if (taken) {
                top->load___05Fvalid = 0;
                return;
            }
        }
        top->load___05Fvalid = 0;
        overruns++;
    }
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Chip* nnp_create() { return new Chip; }

void nnp_destroy(Chip* chip) {
#if VM_TRACE
    if (chip->trace) chip->trace->close();
#endif
    Verilated::threadContextp(&chip->context);  // Scopes leave the context of the thread, not the chip's own.
    chip->top->final();
    delete chip;
}

// Write a waveform from cycle `from` on; 0 where the library was built without.
int nnp_trace(Chip* chip, const char* path, uint64_t from) {
#if VM_TRACE
    chip->trace_from = from;
    chip->trace = std::make_unique<VerilatedVcdC>();
    chip->top->trace(chip->trace.get(), 99);
    chip->trace->open(path);
    return 1;
#else
    return 0;
#endif
}

// Cycles from an address to its first beat, and probability of a stall in 1/65536.
void nnp_dram(Chip* chip, uint64_t seed, uint32_t latency, uint32_t stall) {
    chip->dram.seed(seed);
    chip->dram.latency = latency;
    chip->dram.stall = stall;
}

// Answer burst `number` of one kind of access, or of all, counted from power-up, wrongly.
void nnp_dram_fault(Chip* chip, uint64_t number, uint32_t fault, uint32_t access) {
    chip->dram.fault_at = number;
    chip->dram.fault = static_cast<Fault>(fault);
    chip->dram.counted = static_cast<Access>(access);
    chip->dram.failed = {0, 0, Access::ANY};
}

void nnp_dram_move(Chip* chip, uint32_t address, uint8_t* bytes, uint64_t count, uint32_t into) {
    chip->dram.move(address, bytes, count, into);
}

uint64_t nnp_dram_bytes(Chip* chip, uint32_t written) {
    return written ? chip->dram.bytes_written : chip->dram.bytes_read;
}

// Number of bursts since power-up.
uint64_t nnp_dram_bursts(Chip* chip) {
    return chip->dram.bursts[0] + chip->dram.bursts[1] + chip->dram.bursts[2];
}

// The first rule of the port that was broken, or null.
const char* nnp_dram_rule(Chip* chip) {
    uint32_t rule = chip->dram.monitor.first();
    return rule == RULES ? nullptr : RULE_NAMES[rule];
}

uint32_t nnp_read(Chip* chip, uint32_t address) { return chip->port.read(*chip, address); }

void nnp_write(Chip* chip, uint32_t address, uint32_t value) { chip->port.write(*chip, address, value); }

void nnp_load(Chip* chip, const uint32_t* words, uint64_t count) {
    for (uint64_t k = 0; k < count; k++) chip->load(words + 4 * k, k + 1 == count);
}

// Start the program.
void nnp_start(Chip* chip, uint32_t first, uint32_t second) {
    constexpr uint32_t control = 0x00, start = 1;
    chip->top->first = first;
    chip->top->second = second;
    nnp_write(chip, control, start);
}

// Run until the program has ended and the memory has answered all, or for `most` cycles; whether it has.
int nnp_run(Chip* chip, uint64_t most) {
    constexpr uint32_t status = 0x04, running = 1, done = 2, dram_busy = 64;
    for (uint64_t end = chip->cycles + most; chip->cycles < end;) {
        if ((nnp_read(chip, status) & (running | done | dram_busy)) == done && !chip->dram.owed()) return 1;
        for (int k = 0; k < 8; k++) chip->cycle();
    }
    return 0;
}

void nnp_step(Chip* chip, uint64_t cycles) {
    while (cycles--) chip->cycle();
}

uint64_t nnp_cycles(Chip* chip) { return chip->cycles; }

// Cycles in which a program was running.
uint64_t nnp_running(Chip* chip) { return chip->running; }

// Cycles in which a signal of the port `busy` was 1.
uint64_t nnp_busy(Chip* chip, uint32_t number) { return chip->busy[number]; }

// 2: a port of the host did not answer; 4: an assertion failed; 8: the port of the memory broke a rule.
int nnp_faults(Chip* chip) {
    return 2 * (chip->port.overruns + chip->overruns > 0) + 4 * chip->context.gotError()
           + 8 * (chip->dram.monitor.violations() > 0);
}
}
