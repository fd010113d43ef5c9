// Simulation model of the multiplier of Lattice ECP5: 18 x 18 bits, signed or not.
//
// After what is known of Lattice FPGA-TN-02205, "ECP5 and ECP5-5G sysDSP Usage Guide", for what the gateware
// and Yosys make of it; whatever else is asked of it stops the simulation. Factors, product and
// output have a register each, or none, on one of four clocks with one of four enables. The pipeline
// register is behind the multiplication, the output register behind that.
//
// Not here: shift chains, the ports to the adder (a netlist that connects them does not compile),
// and resets, whose order with enables the guide does not say. SIGNEDA and SIGNEDB must not change
// where a register is in use: the guide leaves open which register they pass.
module MULT18X18D (
    input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0,
    input B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0,
    input C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0,
    input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
    input CLK3, CLK2, CLK1, CLK0,
    input CE3, CE2, CE1, CE0,
    input RST3, RST2, RST1, RST0,
    output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19,
         P18, P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0
);
    parameter REG_INPUTA_CLK = "NONE";
    parameter REG_INPUTA_CE = "CE0";
    parameter REG_INPUTA_RST = "RST0";
    parameter REG_INPUTB_CLK = "NONE";
    parameter REG_INPUTB_CE = "CE0";
    parameter REG_INPUTB_RST = "RST0";
    parameter REG_INPUTC_CLK = "NONE";
    parameter REG_PIPELINE_CLK = "NONE";
    parameter REG_PIPELINE_CE = "CE0";
    parameter REG_PIPELINE_RST = "RST0";
    parameter REG_OUTPUT_CLK = "NONE";
    parameter REG_OUTPUT_CE = "CE0";
    parameter REG_OUTPUT_RST = "RST0";
    parameter GSR = "ENABLED";
    parameter MULT_BYPASS = "DISABLED";
    parameter CAS_MATCH_REG = "FALSE";
    parameter RESETMODE = "SYNC";
    wire [17:0] a = {A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0};
    wire [17:0] b = {B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0};
    wire [3:0] clk = {CLK3, CLK2, CLK1, CLK0};
    wire [3:0] ce = {CE3, CE2, CE1, CE0};
    wire [3:0] rst = {RST3, RST2, RST1, RST0};

    // Number of a clock, enable or reset from the last letter of its name; -1 for none.
    function integer number(input [39:0] name);
        number = name[7:0] >= "0" && name[7:0] <= "3" ? {30'b0, name[1:0]} : -1;
    endfunction

    localparam integer CLOCK_A = number(REG_INPUTA_CLK), ENABLE_A = number(REG_INPUTA_CE);
    localparam integer CLOCK_B = number(REG_INPUTB_CLK), ENABLE_B = number(REG_INPUTB_CE);
    localparam integer CLOCK_M = number(REG_PIPELINE_CLK), ENABLE_M = number(REG_PIPELINE_CE);
    localparam integer CLOCK_P = number(REG_OUTPUT_CLK), ENABLE_P = number(REG_OUTPUT_CE);
    localparam REGISTERED = CLOCK_A >= 0 || CLOCK_B >= 0 || CLOCK_M >= 0 || CLOCK_P >= 0;

    initial begin
        if ((CLOCK_A < 0 && REG_INPUTA_CLK != "NONE") || (CLOCK_B < 0 && REG_INPUTB_CLK != "NONE") ||
            (CLOCK_M < 0 && REG_PIPELINE_CLK != "NONE") || (CLOCK_P < 0 && REG_OUTPUT_CLK != "NONE"))
            $fatal(1, "MULT18X18D: a clock of a register is not modelled");
        if (ENABLE_A < 0 || ENABLE_B < 0 || ENABLE_M < 0 || ENABLE_P < 0)
            $fatal(1, "MULT18X18D: an enable of a register is not modelled");
        if (MULT_BYPASS != "DISABLED")
            $fatal(1, "MULT18X18D: MULT_BYPASS = %0s is not modelled", MULT_BYPASS);
        if (CAS_MATCH_REG != "FALSE")
            $fatal(1, "MULT18X18D: CAS_MATCH_REG = %0s is not modelled", CAS_MATCH_REG);
    end

    always @* begin
        if (SOURCEA || SOURCEB) $fatal(1, "MULT18X18D: a shift chain is not modelled");
    end

    reg [17:0] a_input = 18'b0, b_input = 18'b0;
    reg [35:0] pipeline = 36'b0, register = 36'b0;
    wire [17:0] a_used = CLOCK_A < 0 ? a : a_input;
    wire [17:0] b_used = CLOCK_B < 0 ? b : b_input;
    wire signed [18:0] a_factor = {SIGNEDA & a_used[17], a_used};
    wire signed [18:0] b_factor = {SIGNEDB & b_used[17], b_used};
    wire signed [37:0] all_bits = a_factor * b_factor;
    wire [35:0] multiplied = CLOCK_M < 0 ? all_bits[35:0] : pipeline;
    wire [35:0] product = CLOCK_P < 0 ? multiplied : register;

    reg [1:0] signs = 2'b0;
    reg signs_known = 1'b0;

    task check;
        begin
            if (rst != 4'b0) $fatal(1, "MULT18X18D: a reset is not modelled");
            if (signs_known && signs != {SIGNEDA, SIGNEDB})
                $fatal(1, "MULT18X18D: a change of SIGNEDA or SIGNEDB is not modelled");
        end
    endtask

    generate
        if (CLOCK_A >= 0) always @(posedge clk[CLOCK_A]) if (ce[ENABLE_A]) a_input <= a;
        if (CLOCK_B >= 0) always @(posedge clk[CLOCK_B]) if (ce[ENABLE_B]) b_input <= b;
        if (CLOCK_M >= 0)
            always @(posedge clk[CLOCK_M]) if (ce[ENABLE_M]) pipeline <= all_bits[35:0];
        if (CLOCK_P >= 0) always @(posedge clk[CLOCK_P]) if (ce[ENABLE_P]) register <= multiplied;
        if (REGISTERED)
            always @(posedge |clk) begin
                check;
                signs <= {SIGNEDA, SIGNEDB};
                signs_known <= 1'b1;
            end
    endgenerate
    assign
        {P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19,
        P18, P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0}
            = product;
endmodule
