#pragma once

namespace VV_NS {

static const Kernels table = {VV_ISA_NAME, VV_A_ELEM, thread_begin, thread_end, gemm,     embed,    norm_quant,
                              quant,       quant_groups, pack_row,  head_row,   attention, head_row_int8, attention_int8};

}  // namespace VV_NS
