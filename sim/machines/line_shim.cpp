// A Verilated machine at a serial line behind a C interface, for ctypes: bytes in and out, bit by bit, and cycles.

#include "Vtop.h"
#include "verilated.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>

namespace {

struct Board {
    VerilatedContext context;
    std::unique_ptr<Vtop> top;
    std::deque<uint8_t> input, output;
    double bit;                       // Clock cycles of a bit at this end of the line.
    double sending = 0, taking = -1;  // Time since the start of the byte under way; taking: -1 between bytes.
    bool busy = false;
    unsigned bits = 0, taken = 0, count = 0;
    uint64_t cycles = 0;

    explicit Board(double bit) : bit(bit) {
        top = std::make_unique<Vtop>(&context, "nnp");
        top->rx = 1;
        for (int k = 0; k < 4; k++) {
            top->rst = k < 3;
            cycle();
        }
    }

    void cycle() {
        drive();
        top->clk = 0;
        top->eval();
        sample();
        top->clk = 1;
        top->eval();
        cycles++;
    }

    void drive() {
        if (busy && sending >= 10 * bit) {
            busy = false;
            sending -= 10 * bit;
        }
        if (!busy && !input.empty()) {
            bits = input.front() << 1 | 0x200;
            input.pop_front();
            busy = true;
        } else if (!busy) {
            sending = 0;
        }
        top->rx = busy ? bits >> static_cast<unsigned>(sending / bit) & 1 : 1;
        if (busy) sending += 1;
    }

    void sample() {
        if (taking < 0) {
            if (top->tx) return;
            taking = count = taken = 0;
        }
        taking += 1;
        if (taking < (count + 0.5) * bit) return;
        taken |= top->tx << count;
        if (++count < 10) return;
        if (taken >> 9) output.push_back(taken >> 1 & 0xFF);
        taking = -1;
    }
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Board* line_create(double bit) { return new Board(bit); }

void line_destroy(Board* board) {
    board->top->final();
    delete board;
}

void line_send(Board* board, const uint8_t* bytes, uint64_t count) {
    board->input.insert(board->input.end(), bytes, bytes + count);
}

// Run for `cycles`, or until a zero byte has come, which ends a frame; the number of bytes that have come.
uint64_t line_run(Board* board, uint64_t cycles) {
    while (cycles-- && (board->output.empty() || board->output.back())) board->cycle();
    return board->output.size();
}

void line_receive(Board* board, uint8_t* bytes, uint64_t count) {
    std::copy_n(board->output.begin(), count, bytes);
    board->output.erase(board->output.begin(), board->output.begin() + count);
}

uint64_t line_cycles(Board* board) { return board->cycles; }

unsigned line_lights(Board* board) { return board->top->lights; }
}
