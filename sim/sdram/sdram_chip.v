// An SDR SDRAM of four banks, 16 bits wide, that refuses what its data sheet does: times, order, banks that are not open.
//
// It takes commands at rising edges of `clk`, with bursts of one column. Times are in picoseconds, those whose names end
// in `_CYCLES` in clock cycles. A violation is an error of the simulation that names the time or rule. While it does not
// drive DQ, `q` is noise, so that data that are taken in a wrong cycle are wrong.

module sdram_chip #(
    parameter PERIOD = 20_000,         // of `clk`
    parameter RCD = 20_000,            // ACTIVE to READ or WRITE
    parameter RP = 20_000,             // PRECHARGE to ACTIVE, REFRESH or LOAD MODE
    parameter RAS = 44_000,            // ACTIVE to PRECHARGE
    parameter RC = 66_000,             // ACTIVE to ACTIVE of the same bank
    parameter RRD = 15_000,            // ACTIVE to ACTIVE of another bank
    parameter RFC = 66_000,            // REFRESH to any command
    parameter WR = 15_000,             // WRITE to PRECHARGE
    parameter MRD_CYCLES = 2,          // LOAD MODE to any command
    parameter REFI = 7_812_500,        // between two refreshes, on average
    parameter POSTPONED = 8,           // refreshes that may be owed
    parameter POWER_UP = 100_000_000,  // power-up to the first command
    parameter CL2_PERIOD = 10_000,     // least PERIOD with a latency of 2 cycles
    parameter CL3_PERIOD = 7_500,      // and of 3
    parameter ROW_BITS = 13,
    parameter COLUMN_BITS = 9
) (
    input clk,
    input cke, cs_n, ras_n, cas_n, we_n,
    input [1:0] ba,
    input [ROW_BITS-1:0] a,
    input [1:0] dqm,
    input [15:0] d,       // what the controller drives
    input d_driven,       // whether it does
    input [3:0] strict,   // for tests: number of the time of which the chip needs far more; 0 for none
    output reg [15:0] q   // what it sees
);
    localparam [2:0] LOAD_MODE = 3'b000, REFRESH = 3'b001, PRECHARGE = 3'b010, ACTIVE = 3'b011, WRITE = 3'b100,
                     READ = 3'b101, NOP = 3'b111;

    reg [15:0] memory [0:(1 << (2 + ROW_BITS + COLUMN_BITS)) - 1];
    reg [3:0] open = 0;
    reg [ROW_BITS-1:0] row [0:3];
    reg [63:0] now = 0, refreshed = 0, moded = 0, any_activated = 0;  // picoseconds
    reg [63:0] activated [0:3], precharged [0:3], written [0:3];
    reg [63:0] owed = 0;                             // picoseconds without a refresh
    reg [3:0] refreshes = 0;
    reg was_high = 0, cleared = 0, ready = 0;        // CKE was high; all banks were precharged; a mode was loaded
    reg [2:0] latency = 0;
    reg [2:0] due = 0;                               // bit k: a column leaves k edges after this one
    reg [15:0] columns [0:2];
    reg [1:0] masked = 0;                            // DQM of the edge before
    reg driving = 0;
    reg [15:0] noise = 16'hACE1;
    wire [2:0] command = {ras_n, cas_n, we_n};
    wire [1+ROW_BITS+COLUMN_BITS:0] place = {row[ba], ba, a[COLUMN_BITS-1:0]};
    integer k;

    initial for (k = 0; k < 4; k = k + 1) begin
        activated[k] = 0;
        precharged[k] = 0;
        written[k] = 0;
        row[k] = 0;
    end

    // A time as this chip needs it.
    function [63:0] needed(input [3:0] number, input [63:0] least);
        needed = strict != number ? least : number == 5 || number == 8 ? 16 * least : 4 * least;
    endfunction

    // Fail unless `since` lies at least `least` picoseconds back; 0 is before everything.
    task after(input [63:0] since, input [3:0] number, input [63:0] least, input [8*8-1:0] name);
        if (since != 0 && now - since < needed(number, least)) $error("sdram: %0s is violated", name);
    endtask

    task rule(input kept, input [48*8-1:0] text);
        if (!kept) $error("sdram: %0s", text);
    endtask

    task precharge(input [1:0] bank);
        if (open[bank]) begin
            after(activated[bank], 3, RAS, "tRAS");
            after(written[bank], 7, WR, "tWR");
            precharged[bank] = now;
            open[bank] = 0;
        end
    endtask

    task column_allowed;
        rule(ready, "a column before the chip is initialised");
        rule(open[ba], "a column of a bank that is not open");
        rule(!a[10], "this model knows no automatic precharge");
        after(activated[ba], 1, RCD, "tRCD");
    endtask

    task execute;
        after(refreshed, 6, RFC, "tRFC");
        after(moded, 8, MRD_CYCLES * PERIOD, "tMRD");
        rule(cke && was_high, "a command while CKE is low");
        rule(now >= needed(10, POWER_UP), "a command before the time of power-up");
        rule(cleared || command == PRECHARGE, "the first command is no PRECHARGE of all banks");
        case (command)
            LOAD_MODE: begin
                rule(open == 0, "LOAD MODE while a bank is open");
                for (k = 0; k < 4; k = k + 1) after(precharged[k], 2, RP, "tRP");
                rule(ba == 0 && a[2:0] == 0 && a[8:7] == 0, "this model knows bursts of one column only");
                rule(a[6:4] == 2 || a[6:4] == 3, "a latency that is not 2 or 3");
                rule(PERIOD >= (a[6:4] == 2 ? CL2_PERIOD : CL3_PERIOD), "the clock is too fast for the latency");
                latency = a[6:4];
                moded = now;
                rule(refreshes >= 2, "LOAD MODE before two refreshes");
                ready = 1;
            end
            REFRESH: begin
                rule(open == 0, "REFRESH while a bank is open");
                for (k = 0; k < 4; k = k + 1) after(precharged[k], 2, RP, "tRP");
                refreshed = now;
                owed = owed > REFI ? owed - REFI : 0;
                if (refreshes != 15) refreshes = refreshes + 1;
            end
            PRECHARGE: begin
                if (a[10]) begin
                    for (k = 0; k < 4; k = k + 1) precharge(k[1:0]);
                    cleared = 1;
                end else precharge(ba);
            end
            ACTIVE: begin
                rule(ready, "ACTIVE before the chip is initialised");
                rule(!open[ba], "ACTIVE of a bank that is open");
                after(precharged[ba], 2, RP, "tRP");
                after(activated[ba], 4, RC, "tRC");
                after(any_activated, 5, RRD, "tRRD");
                activated[ba] = now;
                any_activated = now;
                open[ba] = 1;
                row[ba] = a;
            end
            WRITE: begin
                column_allowed;
                rule(d_driven, "WRITE without data");
                if (!dqm[0]) memory[place][7:0] = d[7:0];
                if (!dqm[1]) memory[place][15:8] = d[15:8];
                written[ba] = now;
            end
            READ: begin
                column_allowed;
                due[latency - 1] = 1;
                columns[latency - 1] = memory[place];
            end
            default: rule(0, "this model knows no BURST TERMINATE");
        endcase
    endtask

    always @(posedge clk) begin
        now = now + PERIOD;
        noise = {noise[14:0], noise[15] ^ noise[13] ^ noise[12] ^ noise[10]};
        due = due >> 1;
        columns[0] = columns[1];
        columns[1] = columns[2];
        rule(!(d_driven && (driving || due[0])), "both sides drive DQ");
        rule(!was_high || cke, "CKE falls");
        if (ready) owed = owed + PERIOD;
        rule(owed <= (POSTPONED + 1) * REFI / (strict == 9 ? 64 : 1), "too many refreshes are owed");
        driving = due[0];
        q = noise;
        if (driving && !masked[0]) q[7:0] = columns[0][7:0];
        if (driving && !masked[1]) q[15:8] = columns[0][15:8];
        if (!cs_n && command != NOP) execute;
        masked = dqm;
        was_high = cke;
    end
endmodule
