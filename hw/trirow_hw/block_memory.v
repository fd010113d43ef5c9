
// A memory with one write port and one read port, a register behind the read one: block RAM with
// its output register. A read that meets a write to its word is never used.
module trirow_block_memory #(
    parameter BITS = 8,
    parameter DEPTH = 16,
    parameter ADDRESS_BITS = 4
) (
    input wire clk,
    input wire [ADDRESS_BITS-1:0] write_address,
    input wire [BITS-1:0] write_data,
    input wire write_enable,
    input wire [ADDRESS_BITS-1:0] read_address,
    output reg [BITS-1:0] read_data
);
    // For Yosys and for Quartus: no logic for reads that meet writes.
    (* no_rw_check *) (* ramstyle = "no_rw_check" *) reg [BITS-1:0] words [0:DEPTH-1];
    reg [BITS-1:0] word;

    always @(posedge clk) begin
        if (write_enable) words[write_address] <= write_data;
        word <= words[read_address];
        read_data <= word;
    end
endmodule
