// Memory of trirow_hw.block_memory: one write port, one read port with a register behind it.
module trirow_block_memory #(
    parameter BITS = 8, parameter DEPTH = 16, parameter ADDRESS_BITS = 4
) (
    input clk,
    input [ADDRESS_BITS-1:0] write_address, input [BITS-1:0] write_data, input write_enable,
    input [ADDRESS_BITS-1:0] read_address, output reg [BITS-1:0] read_data
);
    reg [BITS-1:0] words [0:DEPTH-1];
    reg [BITS-1:0] word;
    always @(posedge clk) begin
        word <= words[read_address];
        read_data <= word;
        if (write_enable) words[write_address] <= write_data;
    end
endmodule
