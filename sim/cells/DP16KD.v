// Block RAM of an ECP5: 1,024 words of 18 bits behind two ports, in the modes that Yosys's synth_ecp5 makes, with or
// without output registers. All others end the build by a sentence, and a reset ends the simulation.
//
// A port has words of 1, 2, 4, 9 or 18 bits, or of 36 bits, which are written through both data inputs by port A, and
// read through both data outputs by port B: port A has the low half. A word of 18 bits has two bytes of 9 bits; words
// of 1, 2 and 4 bits do without the ninth one. The lowest bits of the address that wide words leave over enable bytes.
//
// What a port reads where the other one writes in the same cycle is undefined; this model returns the complement of
// what is stored, so that a machine that depends on it gives wrong results.
module DP16KD (
  input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1,
  DIA0,
  input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
  input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
  output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1,
  DOA0,
  input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1,
  DIB0,
  input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
  input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
  output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1,
  DOB0
);
  parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18;
  parameter REGMODE_A = "NOREG", REGMODE_B = "NOREG";
  parameter RESETMODE = "SYNC", ASYNC_RESET_RELEASE = "SYNC";
  parameter CSDECODE_A = "0b000", CSDECODE_B = "0b000";
  parameter WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL";
  parameter CLKAMUX = "CLKA", CLKBMUX = "CLKB";
  parameter GSR = "ENABLED";
  parameter INITVAL_00 = 320'h0, INITVAL_01 = 320'h0, INITVAL_02 = 320'h0, INITVAL_03 = 320'h0, INITVAL_04 = 320'h0,
  INITVAL_05 = 320'h0, INITVAL_06 = 320'h0, INITVAL_07 = 320'h0;
  parameter INITVAL_08 = 320'h0, INITVAL_09 = 320'h0, INITVAL_0A = 320'h0, INITVAL_0B = 320'h0, INITVAL_0C = 320'h0,
  INITVAL_0D = 320'h0, INITVAL_0E = 320'h0, INITVAL_0F = 320'h0;
  parameter INITVAL_10 = 320'h0, INITVAL_11 = 320'h0, INITVAL_12 = 320'h0, INITVAL_13 = 320'h0, INITVAL_14 = 320'h0,
  INITVAL_15 = 320'h0, INITVAL_16 = 320'h0, INITVAL_17 = 320'h0;
  parameter INITVAL_18 = 320'h0, INITVAL_19 = 320'h0, INITVAL_1A = 320'h0, INITVAL_1B = 320'h0, INITVAL_1C = 320'h0,
  INITVAL_1D = 320'h0, INITVAL_1E = 320'h0, INITVAL_1F = 320'h0;
  parameter INITVAL_20 = 320'h0, INITVAL_21 = 320'h0, INITVAL_22 = 320'h0, INITVAL_23 = 320'h0, INITVAL_24 = 320'h0,
  INITVAL_25 = 320'h0, INITVAL_26 = 320'h0, INITVAL_27 = 320'h0;
  parameter INITVAL_28 = 320'h0, INITVAL_29 = 320'h0, INITVAL_2A = 320'h0, INITVAL_2B = 320'h0, INITVAL_2C = 320'h0,
  INITVAL_2D = 320'h0, INITVAL_2E = 320'h0, INITVAL_2F = 320'h0;
  parameter INITVAL_30 = 320'h0, INITVAL_31 = 320'h0, INITVAL_32 = 320'h0, INITVAL_33 = 320'h0, INITVAL_34 = 320'h0,
  INITVAL_35 = 320'h0, INITVAL_36 = 320'h0, INITVAL_37 = 320'h0;
  parameter INITVAL_38 = 320'h0, INITVAL_39 = 320'h0, INITVAL_3A = 320'h0, INITVAL_3B = 320'h0, INITVAL_3C = 320'h0,
  INITVAL_3D = 320'h0, INITVAL_3E = 320'h0, INITVAL_3F = 320'h0;

  function automatic known(input integer width);
    known = width == 1 || width == 2 || width == 4 || width == 9 || width == 18 || width == 36;
  endfunction
  generate
    if (!known(DATA_WIDTH_A) || !known(DATA_WIDTH_B))
      $fatal(1, "DP16KD: words of %0d and %0d bits are none that Yosys makes", DATA_WIDTH_A, DATA_WIDTH_B);
    if (DATA_WIDTH_B == 36 && DATA_WIDTH_A != 36)
      $fatal(1, "DP16KD: port B reads 36 bits only where port A writes 36");
    if (DATA_WIDTH_B == 36 && (REGMODE_A == "OUTREG") != (REGMODE_B == "OUTREG"))
      $fatal(1, "DP16KD: words of 36 bits have output registers at both ports or at none");
    if (WRITEMODE_A != "NORMAL" || WRITEMODE_B != "NORMAL")
      $fatal(1, "DP16KD: this model has ports that keep their output while they write, WRITEMODE NORMAL, only");
    if (CSDECODE_A != "0b000" || CSDECODE_B != "0b000")
      $fatal(1, "DP16KD: this model has no chip select but 000");
    if (CLKAMUX != "CLKA" || CLKBMUX != "CLKB")
      $fatal(1, "DP16KD: this model has no inverted clocks");
  endgenerate

  // Number of the 18-bit word that holds an address's bit, or of the first of two.
  function automatic [9:0] place(input integer width, input [13:0] address);
    place = width == 36 ? {address[13:5], 1'b0} : address[13:4];
  endfunction
  // Bits of the 18-bit word that an address of narrow words, or byte enables, choose.
  function automatic [17:0] chosen(input integer width, input [13:0] address, input [1:0] enables);
    case (width)
      1: chosen = 18'h1 << first(width, address);
      2: chosen = 18'h3 << first(width, address);
      4: chosen = 18'hf << first(width, address);
      9: chosen = 18'h1ff << first(width, address);
      default: chosen = {{9{enables[1]}}, {9{enables[0]}}};
    endcase
  endfunction
  // Place in the 18-bit word at which a narrow word begins.
  function automatic [4:0] first(input integer width, input [13:0] address);
    case (width)
      1: first = 9 * address[3] + address[2:0];
      2: first = 9 * address[3] + 2 * address[2:1];
      4: first = 9 * address[3] + 4 * address[2];
      9: first = 9 * address[3];
      default: first = 0;
    endcase
  endfunction
  // The word that a port reads, at its lowest bits.
  function automatic [17:0] read(input integer width, input [13:0] address, input [17:0] word);
    read = word >> first(width, address) & (width < 18 ? (18'h1 << width) - 18'h1 : 18'h3ffff);
  endfunction

  wire [13:0] ada = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
  wire [13:0] adb = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};
  wire [17:0] dia = {DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4,
    DIA3, DIA2, DIA1, DIA0};
  wire [17:0] dib = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4,
    DIB3, DIB2, DIB1, DIB0};
  reg [17:0] doa = 0, dob = 0;
  wire [17:0] shown_a, shown_b;
  assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2,
    DOA1, DOA0} = shown_a;
  assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2,
    DOB1, DOB0} = shown_b;

  wire [9:0] place_a = place(DATA_WIDTH_A, ada), place_b = place(DATA_WIDTH_B, adb);
  wire [17:0] write_a = CEA && WEA ? chosen(DATA_WIDTH_A, ada, ada[1:0]) : 18'h0;
  wire [17:0] write_b = CEB && WEB ? chosen(DATA_WIDTH_B, adb, adb[1:0]) : 18'h0;
  wire [17:0] write_high = CEA && WEA && DATA_WIDTH_A == 36 ? {{9{ada[3]}}, {9{ada[2]}}} : 18'h0;
  wire [17:0] other_a = place_a == place_b ? write_b : 18'h0;
  wire [17:0] other_b = place_b == place_a ? write_a : place_b == (place_a | 10'h1) ? write_high : 18'h0;
  wire [17:0] other_high = (place_b | 10'h1) == (place_a | 10'h1) ? write_high : 18'h0;

  reg [17:0] mem [0:1023];
  localparam [20479:0] CONTENTS =
    {INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39, INITVAL_38, INITVAL_37,
    INITVAL_36, INITVAL_35, INITVAL_34, INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30, INITVAL_2F, INITVAL_2E,
    INITVAL_2D, INITVAL_2C, INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28, INITVAL_27, INITVAL_26, INITVAL_25,
    INITVAL_24, INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20, INITVAL_1F, INITVAL_1E, INITVAL_1D, INITVAL_1C,
    INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18, INITVAL_17, INITVAL_16, INITVAL_15, INITVAL_14, INITVAL_13,
    INITVAL_12, INITVAL_11, INITVAL_10, INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A,
    INITVAL_09, INITVAL_08, INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01,
    INITVAL_00};
  generate
    if (CONTENTS != 0) begin : filled
      integer k;
      initial for (k = 0; k < 1024; k = k + 1) mem[k] = CONTENTS[20 * k +: 18];
    end
  endgenerate

  always @(posedge CLKA) begin
    if (RSTA) $fatal(1, "DP16KD: this model has no resets, and RSTA is 1");
    if (CSA2 || CSA1 || CSA0) $fatal(1, "DP16KD: this model is always selected, and CSA is not 0");
    if (|write_a) mem[place_a] <= mem[place_a] & ~write_a | dia << first(DATA_WIDTH_A, ada) & write_a;
    if (|write_high) mem[place_a | 10'h1] <= mem[place_a | 10'h1] & ~write_high | dib & write_high;
  end
  always @(posedge CLKB) begin
    if (RSTB) $fatal(1, "DP16KD: this model has no resets, and RSTB is 1");
    if (place_a == place_b && |write_a && |write_b)
      $fatal(1, "DP16KD: this model has no two writes to one word in one cycle");
    if (CSB2 || CSB1 || CSB0) $fatal(1, "DP16KD: this model is always selected, and CSB is not 0");
    if (WEB && DATA_WIDTH_A == 36) $fatal(1, "DP16KD: port A writes words of 36 bits, and WEB is 1");
    if (|write_b) mem[place_b] <= mem[place_b] & ~write_b | dib << first(DATA_WIDTH_B, adb) & write_b;
    if (CEB && !WEB) dob <= DATA_WIDTH_B == 36 ? mem[place_b | 10'h1] ^ other_high
                                               : read(DATA_WIDTH_B, adb, mem[place_b] ^ other_b);
  end
  generate
    if (DATA_WIDTH_B == 36) begin : low_half
      always @(posedge CLKB) if (CEB) doa <= mem[place_b] ^ other_b;
    end else begin : own
      always @(posedge CLKA) if (CEA && !WEA) doa <= read(DATA_WIDTH_A, ada, mem[place_a] ^ other_a);
    end
    if (REGMODE_A == "OUTREG") begin : register_a
      reg [17:0] held = 0;
      if (DATA_WIDTH_B == 36) begin : low_half
        always @(posedge CLKB) held <= doa;
      end else begin : own
        always @(posedge CLKA) held <= doa;
      end
      assign shown_a = held;
      always @(posedge CLKA) if (!OCEA) $fatal(1, "DP16KD: output registers are always enabled, and OCEA is 0");
    end else assign shown_a = doa;
    if (REGMODE_B == "OUTREG") begin : register_b
      reg [17:0] held = 0;
      always @(posedge CLKB) held <= dob;
      assign shown_b = held;
      always @(posedge CLKB) if (!OCEB) $fatal(1, "DP16KD: output registers are always enabled, and OCEB is 0");
    end else assign shown_b = dob;
  endgenerate
endmodule
