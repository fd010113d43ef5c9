// Simulation model of the block RAM of Lattice ECP5: 1024 words of 18 bits with two ports.
//
// After what is known of Lattice FPGA-TN-02204, "ECP5 and ECP5-5G Memory Usage Guide", for what Yosys makes of
// memories; whatever else is asked of it stops the simulation. A port is 1, 2, 4, 9 or 18 bits wide,
// and its address is that of bits: a port of 18 bits ignores the lowest four, and two of them enable
// its bytes of 9 bits instead. Ports of up to 4 bits leave the ninth bit of the bytes alone. With 36
// bits (pseudo dual port) port A only writes, its low half from DIA, with four byte enables, or port
// B only reads, its low half at DOA.
//
// A read that meets a write of the other port to its byte gives what the guide leaves open. Here it
// gives the complement of the bits that were there, so that whoever uses them is found out. It is
// noticed where both clocks rise together.
//
// There is no reset: the guide does not say enough about its order with enables, so a reset stops
// the simulation.
module DP16KD (
    input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5,
         DIA4, DIA3, DIA2, DIA1, DIA0,
    input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1,
         ADA0,
    input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
    input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5,
         DIB4, DIB3, DIB2, DIB1, DIB0,
    input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1,
         ADB0,
    input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
    output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5,
         DOA4, DOA3, DOA2, DOA1, DOA0,
    output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5,
         DOB4, DOB3, DOB2, DOB1, DOB0
);
    parameter DATA_WIDTH_A = 18;
    parameter DATA_WIDTH_B = 18;
    parameter REGMODE_A = "NOREG";
    parameter REGMODE_B = "NOREG";
    parameter WRITEMODE_A = "NORMAL";
    parameter WRITEMODE_B = "NORMAL";
    parameter CSDECODE_A = "0b000";
    parameter CSDECODE_B = "0b000";
    parameter CLKAMUX = "CLKA";
    parameter CLKBMUX = "CLKB";
    parameter RESETMODE = "SYNC";
    parameter ASYNC_RESET_RELEASE = "SYNC";
    parameter GSR = "ENABLED";
    parameter [319:0] INITVAL_00 = 320'b0;
    parameter [319:0] INITVAL_01 = 320'b0;
    parameter [319:0] INITVAL_02 = 320'b0;
    parameter [319:0] INITVAL_03 = 320'b0;
    parameter [319:0] INITVAL_04 = 320'b0;
    parameter [319:0] INITVAL_05 = 320'b0;
    parameter [319:0] INITVAL_06 = 320'b0;
    parameter [319:0] INITVAL_07 = 320'b0;
    parameter [319:0] INITVAL_08 = 320'b0;
    parameter [319:0] INITVAL_09 = 320'b0;
    parameter [319:0] INITVAL_0A = 320'b0;
    parameter [319:0] INITVAL_0B = 320'b0;
    parameter [319:0] INITVAL_0C = 320'b0;
    parameter [319:0] INITVAL_0D = 320'b0;
    parameter [319:0] INITVAL_0E = 320'b0;
    parameter [319:0] INITVAL_0F = 320'b0;
    parameter [319:0] INITVAL_10 = 320'b0;
    parameter [319:0] INITVAL_11 = 320'b0;
    parameter [319:0] INITVAL_12 = 320'b0;
    parameter [319:0] INITVAL_13 = 320'b0;
    parameter [319:0] INITVAL_14 = 320'b0;
    parameter [319:0] INITVAL_15 = 320'b0;
    parameter [319:0] INITVAL_16 = 320'b0;
    parameter [319:0] INITVAL_17 = 320'b0;
    parameter [319:0] INITVAL_18 = 320'b0;
    parameter [319:0] INITVAL_19 = 320'b0;
    parameter [319:0] INITVAL_1A = 320'b0;
    parameter [319:0] INITVAL_1B = 320'b0;
    parameter [319:0] INITVAL_1C = 320'b0;
    parameter [319:0] INITVAL_1D = 320'b0;
    parameter [319:0] INITVAL_1E = 320'b0;
    parameter [319:0] INITVAL_1F = 320'b0;
    parameter [319:0] INITVAL_20 = 320'b0;
    parameter [319:0] INITVAL_21 = 320'b0;
    parameter [319:0] INITVAL_22 = 320'b0;
    parameter [319:0] INITVAL_23 = 320'b0;
    parameter [319:0] INITVAL_24 = 320'b0;
    parameter [319:0] INITVAL_25 = 320'b0;
    parameter [319:0] INITVAL_26 = 320'b0;
    parameter [319:0] INITVAL_27 = 320'b0;
    parameter [319:0] INITVAL_28 = 320'b0;
    parameter [319:0] INITVAL_29 = 320'b0;
    parameter [319:0] INITVAL_2A = 320'b0;
    parameter [319:0] INITVAL_2B = 320'b0;
    parameter [319:0] INITVAL_2C = 320'b0;
    parameter [319:0] INITVAL_2D = 320'b0;
    parameter [319:0] INITVAL_2E = 320'b0;
    parameter [319:0] INITVAL_2F = 320'b0;
    parameter [319:0] INITVAL_30 = 320'b0;
    parameter [319:0] INITVAL_31 = 320'b0;
    parameter [319:0] INITVAL_32 = 320'b0;
    parameter [319:0] INITVAL_33 = 320'b0;
    parameter [319:0] INITVAL_34 = 320'b0;
    parameter [319:0] INITVAL_35 = 320'b0;
    parameter [319:0] INITVAL_36 = 320'b0;
    parameter [319:0] INITVAL_37 = 320'b0;
    parameter [319:0] INITVAL_38 = 320'b0;
    parameter [319:0] INITVAL_39 = 320'b0;
    parameter [319:0] INITVAL_3A = 320'b0;
    parameter [319:0] INITVAL_3B = 320'b0;
    parameter [319:0] INITVAL_3C = 320'b0;
    parameter [319:0] INITVAL_3D = 320'b0;
    parameter [319:0] INITVAL_3E = 320'b0;
    parameter [319:0] INITVAL_3F = 320'b0;

    // 16 words in each value, 20 bits apart.
    localparam [64*320-1:0] INITIAL =
        {INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39,
        INITVAL_38, INITVAL_37, INITVAL_36, INITVAL_35, INITVAL_34, INITVAL_33, INITVAL_32,
        INITVAL_31, INITVAL_30, INITVAL_2F, INITVAL_2E, INITVAL_2D, INITVAL_2C, INITVAL_2B,
        INITVAL_2A, INITVAL_29, INITVAL_28, INITVAL_27, INITVAL_26, INITVAL_25, INITVAL_24,
        INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20, INITVAL_1F, INITVAL_1E, INITVAL_1D,
        INITVAL_1C, INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18, INITVAL_17, INITVAL_16,
        INITVAL_15, INITVAL_14, INITVAL_13, INITVAL_12, INITVAL_11, INITVAL_10, INITVAL_0F,
        INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A, INITVAL_09, INITVAL_08,
        INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01,
        INITVAL_00};

    wire [13:0] address_a = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
    wire [2:0] select_a = {CSA2, CSA1, CSA0};
    wire [13:0] address_b = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};
    wire [2:0] select_b = {CSB2, CSB1, CSB0};
    wire [35:0] data_a = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9,
        DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0,
        DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9,
        DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0};
    wire [35:0] data_b = {18'b0, DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9,
        DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0};

    // Bytes of 9 bits, two in a word.
    reg [8:0] bytes [0:2047];
    integer k;
    initial begin
        for (k = 0; k < 1024; k = k + 1) begin
            bytes[2 * k] = INITIAL[20 * k +: 9];
            bytes[2 * k + 1] = INITIAL[20 * k + 9 +: 9];
        end
    end

    function [0:0] known_width(input integer width);
        known_width = width == 1 || width == 2 || width == 4 || width == 9 || width == 18;
    endfunction

    initial begin
        if (!known_width(DATA_WIDTH_A) && DATA_WIDTH_A != 36)
            $fatal(1, "DP16KD: DATA_WIDTH_A = %0d is not modelled", DATA_WIDTH_A);
        if (!known_width(DATA_WIDTH_B) && DATA_WIDTH_B != 36)
            $fatal(1, "DP16KD: DATA_WIDTH_B = %0d is not modelled", DATA_WIDTH_B);
        if (REGMODE_A != "NOREG" && REGMODE_A != "OUTREG")
            $fatal(1, "DP16KD: REGMODE_A = %0s is not modelled", REGMODE_A);
        if (REGMODE_B != "NOREG" && REGMODE_B != "OUTREG")
            $fatal(1, "DP16KD: REGMODE_B = %0s is not modelled", REGMODE_B);
        if (WRITEMODE_A != "NORMAL" && WRITEMODE_A != "WRITETHROUGH" &&
            WRITEMODE_A != "READBEFOREWRITE")
            $fatal(1, "DP16KD: WRITEMODE_A = %0s is not modelled", WRITEMODE_A);
        if (WRITEMODE_B != "NORMAL" && WRITEMODE_B != "WRITETHROUGH" &&
            WRITEMODE_B != "READBEFOREWRITE")
            $fatal(1, "DP16KD: WRITEMODE_B = %0s is not modelled", WRITEMODE_B);
        if (decoded(CSDECODE_A) < 0)
            $fatal(1, "DP16KD: CSDECODE_A = %0s is not modelled", CSDECODE_A);
        if (decoded(CSDECODE_B) < 0)
            $fatal(1, "DP16KD: CSDECODE_B = %0s is not modelled", CSDECODE_B);
        if (CLKAMUX != "CLKA" && CLKAMUX != "INV")
            $fatal(1, "DP16KD: CLKAMUX = %0s is not modelled", CLKAMUX);
        if (CLKBMUX != "CLKB" && CLKBMUX != "INV")
            $fatal(1, "DP16KD: CLKBMUX = %0s is not modelled", CLKBMUX);
    end

    // Chip selects for which a port is active, -1 if the text is none.
    function integer decoded(input [39:0] text);
        integer bit_index;
        begin
            decoded = text[39:24] == "0b" ? 0 : -1;
            for (bit_index = 0; bit_index < 3; bit_index = bit_index + 1) begin
                if (text[8 * bit_index + 1 +: 7] != "0" >> 1) decoded = -1;
                if (decoded >= 0 && text[8 * bit_index]) decoded = decoded + (1 << bit_index);
            end
        end
    endfunction

    wire clock_a = CLKAMUX == "INV" ? ~CLKA : CLKA;
    wire clock_b = CLKBMUX == "INV" ? ~CLKB : CLKB;
    wire active_a = CEA && select_a == decoded(CSDECODE_A);
    wire active_b = CEB && select_b == decoded(CSDECODE_B);
    wire write_a = active_a && WEA;
    wire write_b = active_b && WEB;

    // First byte of a port's word, and the bits of four bytes from there on that a write changes.
    function [10:0] first(input integer width, input [13:0] address);
        first = width == 36 ? {address[13:5], 2'b0} :
            width == 18 ? {address[13:4], 1'b0} : address[13:3];
    endfunction

    function [35:0] mask(input integer width, input [13:0] address);
        case (width)
            36: mask = {{9{address[3]}}, {9{address[2]}}, {9{address[1]}}, {9{address[0]}}};
            18: mask = {18'b0, {9{address[1]}}, {9{address[0]}}};
            9: mask = 36'h1FF;
            4: mask = 36'hF << 4 * address[2];
            2: mask = 36'h3 << 2 * address[2:1];
            default: mask = 36'h1 << address[2:0];
        endcase
    endfunction

    // Place of a narrow word in its byte.
    function [2:0] shift(input integer width, input [13:0] address);
        shift = width > 4 ? 3'd0 : width == 4 ? {address[2], 2'b0} :
            width == 2 ? {address[2:1], 1'b0} : address[2:0];
    endfunction

    function [35:0] only(input integer width, input [35:0] word);
        only = width == 36 ? word : word & ((36'd1 << width) - 36'd1);
    endfunction

    wire [10:0] first_a = first(DATA_WIDTH_A, address_a);
    wire [10:0] first_b = first(DATA_WIDTH_B, address_b);
    wire [35:0] mask_a = mask(DATA_WIDTH_A, address_a);
    wire [35:0] mask_b = mask(DATA_WIDTH_B, address_b);
    wire [2:0] shift_a = shift(DATA_WIDTH_A, address_a);
    wire [2:0] shift_b = shift(DATA_WIDTH_B, address_b);
    wire [35:0] coming_a = data_a << shift_a;
    wire [35:0] coming_b = data_b << shift_b;
    wire [35:0] old_a = {bytes[first_a | 11'd3], bytes[first_a | 11'd2], bytes[first_a | 11'd1],
        bytes[first_a]};
    wire [35:0] old_b = {bytes[first_b | 11'd3], bytes[first_b | 11'd2], bytes[first_b | 11'd1],
        bytes[first_b]};

    // Which of the four bytes of a port the other one writes at this moment.
    function [35:0] met(input write, input [10:0] mine, input [10:0] others, input [35:0] changed);
        integer i, j;
        begin
            met = 36'b0;
            for (i = 0; i < 4; i = i + 1)
                for (j = 0; j < 4; j = j + 1)
                    if (write && |changed[9 * j +: 9] && (mine | i[10:0]) == (others | j[10:0]))
                        met[9 * i +: 9] = 9'h1FF;
        end
    endfunction

    wire [35:0] read_a = old_a ^ met(write_b, first_a, first_b, mask_b);
    wire [35:0] read_b = old_b ^ met(write_a, first_b, first_a, mask_a);

    // What the memory gives, and the register that can follow.
    reg [35:0] latch_a = 36'b0, latch_b = 36'b0, register_a = 36'b0, register_b = 36'b0;

    always @(posedge clock_a) begin
        if (RSTA) $fatal(1, "DP16KD: a reset is not modelled");
        if (write_a) begin
            for (k = 0; k < 4; k = k + 1)
                if (|mask_a[9 * k +: 9])
                    bytes[first_a | k[10:0]] <= (coming_a[9 * k +: 9] & mask_a[9 * k +: 9]) |
                        (old_a[9 * k +: 9] & ~mask_a[9 * k +: 9]);
            if (WRITEMODE_A == "WRITETHROUGH")
                latch_a <= only(DATA_WIDTH_A,
                    ((coming_a & mask_a) | (read_a & ~mask_a)) >> shift_a);
            else if (WRITEMODE_A == "READBEFOREWRITE")
                latch_a <= only(DATA_WIDTH_A, read_a >> shift_a);
        end else if (active_a) latch_a <= only(DATA_WIDTH_A, read_a >> shift_a);
        if (OCEA) register_a <= latch_a;
    end

    always @(posedge clock_b) begin
        if (RSTB) $fatal(1, "DP16KD: a reset is not modelled");
        if (write_b && (DATA_WIDTH_A == 36 || DATA_WIDTH_B == 36))
            $fatal(1, "DP16KD: a write of port B with 36 bits is not modelled");
        if (write_b) begin
            for (k = 0; k < 4; k = k + 1)
                if (|mask_b[9 * k +: 9])
                    bytes[first_b | k[10:0]] <= (coming_b[9 * k +: 9] & mask_b[9 * k +: 9]) |
                        (old_b[9 * k +: 9] & ~mask_b[9 * k +: 9]);
            if (WRITEMODE_B == "WRITETHROUGH")
                latch_b <= only(DATA_WIDTH_B,
                    ((coming_b & mask_b) | (read_b & ~mask_b)) >> shift_b);
            else if (WRITEMODE_B == "READBEFOREWRITE")
                latch_b <= only(DATA_WIDTH_B, read_b >> shift_b);
        end else if (active_b) latch_b <= only(DATA_WIDTH_B, read_b >> shift_b);
        if (OCEB) register_b <= latch_b;
    end

    wire [35:0] result_a = REGMODE_A == "OUTREG" ? register_a : latch_a;
    wire [35:0] result_b = REGMODE_B == "OUTREG" ? register_b : latch_b;
    assign
        {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5,
        DOA4, DOA3, DOA2, DOA1, DOA0}
            = DATA_WIDTH_B == 36 ? result_b[17:0] : result_a[17:0];
    assign
        {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5,
        DOB4, DOB3, DOB2, DOB1, DOB0}
            = DATA_WIDTH_B == 36 ? result_b[35:18] : result_b[17:0];
endmodule
