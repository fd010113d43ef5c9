// Simulation models of the logic cells of Lattice ECP5 that Yosys' `synth_ecp5` gives.
//
// Yosys has models of these, but with four variables in each: what Verilator makes of thousands of
// them is several times as long. These have one where it can be. They are tested against Yosys'.
// Parameters beyond those that `synth_ecp5` sets are not here, and other values stop the simulation.

module LUT4 (input A, B, C, D, output Z);
    parameter [15:0] INIT = 16'h0000;
    assign Z = INIT[{D, C, B, A}];
endmodule

// Joins two LUT4 to a table of five inputs.
module PFUMX (input ALUT, BLUT, C0, output Z);
    assign Z = C0 ? ALUT : BLUT;
endmodule

// Joins two of those to one of six inputs, or two of six to one of seven.
module L6MUX21 (input D0, D1, SD, output Z);
    assign Z = SD ? D1 : D0;
endmodule

// Two bits of a carry chain. Of each bit's table all 16 entries say whether the carry propagates,
// and the first four, looked up by A and B, what it is else. Injection cuts the chain before a bit.
module CCU2C (
    input CIN, A0, B0, C0, D0, A1, B1, C1, D1,
    output S0, S1, COUT
);
    parameter [15:0] INIT0 = 16'h0000;
    parameter [15:0] INIT1 = 16'h0000;
    parameter INJECT1_0 = "YES";
    parameter INJECT1_1 = "YES";
    localparam CHAIN0 = INJECT1_0 != "YES";
    localparam CHAIN1 = INJECT1_1 != "YES";

    wire propagate0 = INIT0[{D0, C0, B0, A0}];
    wire propagate1 = INIT1[{D1, C1, B1, A1}];
    wire carry = propagate0 ? CIN : CHAIN0 && INIT0[{2'b0, B0, A0}];
    assign S0 = propagate0 ^ (CHAIN0 && CIN);
    assign S1 = propagate1 ^ (CHAIN1 && carry);
    assign COUT = propagate1 ? carry : CHAIN1 && INIT1[{2'b0, B1, A1}];
endmodule

// Register. A set or reset (LSR) goes before the enable, and comes at the clock's edge.
module TRELLIS_FF (input CLK, LSR, CE, DI, output reg Q);
    parameter GSR = "ENABLED";
    parameter CEMUX = "1";
    parameter CLKMUX = "CLK";
    parameter LSRMUX = "LSR";
    parameter SRMODE = "LSR_OVER_CE";
    parameter REGSET = "RESET";
    localparam [0:0] FIRST = REGSET == "SET";

    initial begin
        Q = FIRST;
        if (CLKMUX != "CLK" || LSRMUX != "LSR" || SRMODE != "LSR_OVER_CE")
            $fatal(1, "TRELLIS_FF: CLKMUX, LSRMUX or SRMODE is not modelled");
        if (CEMUX != "1" && CEMUX != "CE" && CEMUX != "INV")
            $fatal(1, "TRELLIS_FF: CEMUX is not modelled");
        if (REGSET != "SET" && REGSET != "RESET")
            $fatal(1, "TRELLIS_FF: REGSET is not modelled");
    end

    generate
        if (CEMUX == "CE") begin
            always @(posedge CLK) if (LSR) Q <= FIRST; else if (CE) Q <= DI;
        end else if (CEMUX == "INV") begin
            always @(posedge CLK) if (LSR) Q <= FIRST; else if (!CE) Q <= DI;
        end else begin
            always @(posedge CLK) Q <= LSR ? FIRST : DI;
        end
    endgenerate
endmodule

// 16 words of 4 bits: written at the clock's edge, read without a clock.
module TRELLIS_DPR16X4 (
    input [3:0] DI, WAD, RAD,
    input WRE, WCK,
    output [3:0] DO
);
    parameter WCKMUX = "WCK";
    parameter WREMUX = "WRE";
    parameter [63:0] INITVAL = 64'b0;

    reg [3:0] words [0:15];
    integer k;
    initial begin
        for (k = 0; k < 16; k = k + 1) words[k] = INITVAL[4 * k +: 4];
        if (WCKMUX != "WCK" || WREMUX != "WRE")
            $fatal(1, "TRELLIS_DPR16X4: WCKMUX or WREMUX is not modelled");
    end

    always @(posedge WCK) if (WRE) words[WAD] <= DI;
    assign DO = words[RAD];
endmodule
