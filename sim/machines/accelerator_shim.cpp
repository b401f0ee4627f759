// The Verilated accelerator behind a C interface, for ctypes: registers, bytes of the memory, whole runs of cycles.
// The cores are Verilated apart, each kind once, and generated code in cores.h connects them.
// DRAM is the width of the memory's bus in bytes, IDS the number of IDs at its port, two for each manager.

#include "Vtop.h"
#include "cores.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

#include <algorithm>
#include <array>
#include <memory>

#include "control_port.h"
#include "dram.h"

namespace {

struct Chip {
    VerilatedContext context;
    std::unique_ptr<Vtop> top;
    std::unique_ptr<Cores> cores;
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace;
#endif
    uint64_t trace_from = 0;  // Cycle at which the waveform begins.
    uint64_t cycles = 0;
    ControlPort port;
    Dram dram;
    bool resetting = true;
    // Of each manager: cycle of its last answer, and the longest time without one.
    std::array<uint64_t, IDS / 2> moved{}, pause{};

    Chip() {
        context.fatalOnError(false);
#if VM_TRACE
        context.traceEverOn(true);
#endif
        top = std::make_unique<Vtop>(&context, "nnp");
        cores = std::make_unique<Cores>(context);
        top->clk = 0;
        for (int k = 0; k < 4; k++) {
            top->rst = k < 3;  // The chip sees it one cycle later.
            cycle();
        }
        resetting = false;
    }

    // Let all outputs follow the inputs. A core answers in the same cycle (READY), and no input of it depends on that.
    void settle() {
        top->clk = 0;
        cores->give(*top);
        top->eval();
        cores->take(*top);
        cores->eval(0);
        cores->give(*top);
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
            if (top->m_axi_rvalid && top->m_axi_rready) beat(top->m_axi_rid);
            if (top->m_axi_bvalid && top->m_axi_bready) beat(top->m_axi_bid);
            dram.watch(*top);
        }
        top->clk = 1;
        top->eval();
        cores->eval(1);  // They have seen what was there before the edge.
        passed();
        cycles++;
    }

    void beat(uint32_t id) {
        uint32_t manager = id / 2;
        if (manager >= moved.size()) return;
        if (moved[manager]) pause[manager] = std::max(pause[manager], cycles - moved[manager]);
        moved[manager] = cycles;
    }

    bool interrupt() {
        settle();
        return top->irq;
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
    chip->cores->final();
    delete chip;
}

// Write a waveform from cycle `from` on; 0 where the library was built without.
int nnp_trace(Chip* chip, const char* path, uint64_t from) {
#if VM_TRACE
    chip->trace_from = from;
    chip->trace = std::make_unique<VerilatedVcdC>();
    chip->top->trace(chip->trace.get(), 99);
    chip->cores->trace(chip->trace.get());
    chip->trace->open(path);
    return 1;
#else
    return 0;
#endif
}

// Cycles from an address to its first beat, probability of a stall in 1/65536, whether beats of IDs come in turns.
void nnp_dram(Chip* chip, uint64_t seed, uint32_t latency, uint32_t stall, uint32_t mixed) {
    chip->dram.seed(seed);
    chip->dram.latency = latency;
    chip->dram.stall = stall;
    chip->dram.mixed = mixed;
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

// Number of bursts of an access since power-up.
uint64_t nnp_dram_bursts(Chip* chip, uint32_t access) { return chip->dram.bursts[access]; }

uint64_t nnp_dram_owed(Chip* chip) { return chip->dram.owed(); }

// The first rule of the port that was broken, or null.
const char* nnp_dram_rule(Chip* chip) {
    uint32_t rule = chip->dram.monitor.first();
    return rule == RULES ? nullptr : RULE_NAMES[rule];
}

uint32_t nnp_read(Chip* chip, uint32_t address) { return chip->port.read(*chip, address); }

void nnp_write(Chip* chip, uint32_t address, uint32_t value) { chip->port.write(*chip, address, value); }

void nnp_step(Chip* chip, uint64_t cycles) {
    while (cycles--) chip->cycle();
}

// Run until no command waits or is under way and the memory has answered all, or for `most` cycles; whether it was so.
int nnp_run(Chip* chip, uint64_t most) {
    constexpr uint32_t status = 0x04, busy_cores = 0x30, busy = 1 | 8;  // spec.accelerator.registers
    for (uint64_t end = chip->cycles + most; chip->cycles < end; nnp_step(chip, 8))
        if (!(nnp_read(chip, status) & busy) && !nnp_read(chip, busy_cores)) return 1;
    return 0;
}

// Longest time, in cycles, between two answers of the memory to a manager since the last call.
uint64_t nnp_pause(Chip* chip, uint32_t manager) {
    uint64_t found = chip->pause[manager];
    chip->pause[manager] = 0;
    chip->moved[manager] = 0;
    return found;
}

uint32_t nnp_interrupt(Chip* chip) { return chip->interrupt(); }

uint64_t nnp_cycles(Chip* chip) { return chip->cycles; }

// 2: the control port did not answer; 4: an assertion failed; 8: the port of the memory broke a rule.
int nnp_faults(Chip* chip) {
    return 2 * (chip->port.overruns > 0) + 4 * chip->context.gotError() + 8 * (chip->dram.monitor.violations() > 0);
}
}
