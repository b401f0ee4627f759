// Multiplier of an ECP5: P = A * B, with or without registers at both factors and at the product, which are always
// enabled and never reset. All other modes end the build or the simulation by a sentence.
module MULT18X18D (
  input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0,
  input B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0,
  input C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0,
  input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, CLK0, CE0, RST0,
  output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15, P14,
  P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0
);
  parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0";
  parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0";
  parameter REG_INPUTC_CLK = "NONE", REG_INPUTC_CE = "CE0", REG_INPUTC_RST = "RST0";
  parameter REG_PIPELINE_CLK = "NONE", REG_PIPELINE_CE = "CE0", REG_PIPELINE_RST = "RST0";
  parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0";
  parameter CLK0_DIV = "ENABLED", CLK1_DIV = "ENABLED", CLK2_DIV = "ENABLED", CLK3_DIV = "ENABLED";
  parameter HIGHSPEED_CLK = "NONE", GSR = "ENABLED", CAS_MATCH_REG = "FALSE", SOURCEB_MODE = "B_SHIFT";
  parameter MULT_BYPASS = "DISABLED", RESETMODE = "SYNC";

  function automatic known(input [31:0] clock);
    known = clock == "NONE" || clock == "CLK0";
  endfunction
  generate
    if (REG_INPUTC_CLK != "NONE" || REG_PIPELINE_CLK != "NONE")
      $fatal(1, "MULT18X18D: this model has registers at A, B and P only");
    if (!known(REG_INPUTA_CLK) || !known(REG_INPUTB_CLK) || !known(REG_OUTPUT_CLK))
      $fatal(1, "MULT18X18D: this model has registers at CLK0 only");
    if (REG_INPUTA_CLK != REG_INPUTB_CLK) $fatal(1, "MULT18X18D: this model has registers at both factors or at none");
    if (MULT_BYPASS != "DISABLED") $fatal(1, "MULT18X18D: this model multiplies always, MULT_BYPASS DISABLED");
    if (CAS_MATCH_REG != "FALSE" || HIGHSPEED_CLK != "NONE")
      $fatal(1, "MULT18X18D: this model has no cascades and no fast clock, which Yosys does not use");
  endgenerate
  always @* if (SOURCEA || SOURCEB) $fatal(1, "MULT18X18D: this model has no shift chain, and SOURCEA or SOURCEB is 1");

  wire [17:0] a = {A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0};
  wire [17:0] b = {B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0};
  wire [17:0] factor_a, factor_b;
  wire signed [37:0] product = $signed({SIGNEDA & factor_a[17], factor_a}) * $signed({SIGNEDB & factor_b[17], factor_b});
  wire [35:0] p;
  generate
    if (REG_INPUTA_CLK == "CLK0") begin : registered_factors
      reg [17:0] held_a = 0, held_b = 0;
      always @(posedge CLK0) {held_a, held_b} <= {a, b};
      assign {factor_a, factor_b} = {held_a, held_b};
    end else assign {factor_a, factor_b} = {a, b};
    if (REG_OUTPUT_CLK == "CLK0") begin : registered_product
      reg [35:0] held = 0;
      always @(posedge CLK0) held <= product[35:0];
      assign p = held;
    end else assign p = product[35:0];
    if (REG_INPUTA_CLK == "CLK0" || REG_OUTPUT_CLK == "CLK0") begin : enabled
      always @(posedge CLK0) if (!CE0 || RST0)
        $fatal(1, "MULT18X18D: registers of this model are always enabled and have no reset, and CE0 is 0 or RST0 is 1");
    end
  endgenerate
  assign {
    P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15, P14, P13,
    P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0
  } = p;
endmodule
