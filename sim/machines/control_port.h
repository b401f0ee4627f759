// The host's side of an AXI4-Lite port. A chip has its Verilated `top`; `settle`, after which its outputs follow a change
// of inputs; and `cycle`, which lets a clock cycle pass.

#pragma once

#include <cstdint>

struct ControlPort {
    static constexpr int PATIENCE = 1000;  // Cycles in which an access ends.
    uint64_t overruns = 0;                 // Accesses that did not.

    template <class Chip> uint32_t read(Chip& chip, uint32_t address) {
        auto& top = *chip.top;
        top.s_axil_araddr = address;
        top.s_axil_arvalid = top.s_axil_rready = 1;
        for (int k = 0; k < PATIENCE; k++) {
            chip.settle();
            bool taken = top.s_axil_arvalid && top.s_axil_arready, answered = top.s_axil_rvalid;
            uint32_t value = top.s_axil_rdata;
            chip.cycle();
            if (taken) top.s_axil_arvalid = 0;
            if (answered) {
                top.s_axil_rready = 0;
                return value;
            }
        }
        overruns++;
        return 0;
    }

    template <class Chip> void write(Chip& chip, uint32_t address, uint32_t value) {
        auto& top = *chip.top;
        top.s_axil_awaddr = address;
        top.s_axil_wdata = value;
        top.s_axil_wstrb = 15;
        top.s_axil_awvalid = top.s_axil_wvalid = top.s_axil_bready = 1;
        for (int k = 0; k < PATIENCE; k++) {
            chip.settle();
            bool address_taken = top.s_axil_awready, data_taken = top.s_axil_wready, answered = top.s_axil_bvalid;
            chip.cycle();
            if (address_taken) top.s_axil_awvalid = 0;
            if (data_taken) top.s_axil_wvalid = 0;
            if (answered) {
                top.s_axil_bready = 0;
                return;
            }
        }
        overruns++;
    }
};
