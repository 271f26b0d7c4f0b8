/* The C ABI of the native engine: one call runs the whole forward step of a Qwen2 / Llama / Qwen3-dense decoder.
 *
 * Weights are int8 per output channel, activations int8 per row (W8A8), sums int32, everything between fp32, KV bf16
 * or int8 (one scale per position and kv head, of K and of V).
 * A row's result does not depend on which other rows are in the batch, nor on the number of threads: every per-row
 * computation has one fixed order of operations. That is what makes speculative drafting lossless.
 *
 * Nothing here is thread-safe per model: one thread at a time may call vv_forward on a model.
 */
#ifndef VIVACE_NATIVE_H
#define VIVACE_NATIVE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define VV_API __attribute__((visibility("default")))
#else
#define VV_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define VV_ABI 3      /* raised when a struct or a meaning changes; binding.py refuses another number */
#define VV_KV_BLOCK 32 /* positions in one KV block */

enum { VV_ISA_AUTO = -1, VV_ISA_PORTABLE = 0, VV_ISA_AVX2 = 1, VV_ISA_AVX512 = 2, VV_ISA_AMX = 3, VV_ISA_AVXVNNI = 4 };
enum { VV_FLAG_PIN = 1, VV_FLAG_PROFILE = 2 };
enum { VV_KV_BF16 = 0, VV_KV_INT8 = 1 };
enum { VV_OK = 0, VV_ABORTED = 1, VV_EINVAL = -1, VV_ENOMEM = -2 };

/* A packed weight matrix, y = x w^T. `w` is what vv_pack wrote. scale, colsum and bias hold one value per output
 * column and must be readable up to n rounded up to 16 (the padding is ignored). bias may be NULL. */
typedef struct {
    const int8_t *w;
    const float *scale;
    const int32_t *colsum;
    const float *bias;
    int32_t n, k;
} vv_linear;

typedef struct {
    int32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    int32_t rope_dim;         /* rotated leading dimensions of a head; 0 = head_dim */
    int32_t rope_interleaved; /* 0: pairs (i, i + rope_dim/2) as in HF; 1: pairs (2i, 2i+1) as in GGUF llama files */
    int32_t max_rows;         /* most rows of one vv_forward */
    int32_t max_positions;    /* positions are 0 .. max_positions - 1 */
    int32_t flags;            /* VV_FLAG_* */
    int32_t idle_spin_us;     /* how long a worker spins for the next step before it sleeps; <0 = default (200) */
    int32_t reserved;
    double rope_theta;
    double rms_eps;
    const double *inv_freq; /* rope_dim/2 inverse frequencies (scaled RoPE), or NULL: rope_theta^(-2i/rope_dim) */
    double rope_attn_factor; /* multiplies cos and sin (YaRN); 0 = 1 */
} vv_config;

typedef struct {
    const float *attn_norm; /* [hidden] */
    vv_linear qkv;          /* n = (heads + 2 kv_heads) head_dim: q rows, then k, then v */
    const float *q_norm;    /* [head_dim] or NULL */
    const float *k_norm;
    vv_linear o;            /* k = heads head_dim */
    const float *ffn_norm;
    vv_linear gate_up;      /* n = 2 ffn; 16 gate rows, 16 up rows, 16 gate rows, ... */
    vv_linear down;         /* k = ffn */
} vv_layer;

typedef struct {
    const uint16_t *embed;  /* bf16 [vocab][hidden]; only the rows that occur are touched */
    const vv_layer *layers; /* [config.layers]; copied by vv_model_create, the arrays pointed to are not */
    const float *final_norm;
    vv_linear head;         /* n = vocab */
} vv_weights;

typedef struct {
    const int32_t *blocks; /* block ids; covers positions 0 .. start + rows - 1 */
    int32_t start;         /* position of the first row = tokens already cached */
    int32_t rows;
} vv_span;

typedef struct {
    const int32_t *tokens; /* [n_tokens], the rows of all spans joined */
    const vv_span *spans;
    const int32_t *argmax_rows; /* rows whose arg max is wanted */
    int32_t *argmax;            /* [n_argmax] out; ties give the lowest id */
    float *argmax_logit;        /* [n_argmax] out */
    const float *argmax_sharpness; /* NULL, or [n_argmax]: 1 / temperature, 0 where the next is not wanted */
    float *argmax_weight; /* [n_argmax] out: sum over the vocabulary of exp((logit - largest) * sharpness), to 1e-5 */
    const int32_t *logit_rows;
    float *logits; /* [n_logits][vocab] out */
    int32_t n_tokens, n_spans, n_argmax, n_logits;
} vv_batch;

typedef struct vv_model vv_model;
typedef struct vv_kv vv_kv;

VV_API int32_t vv_abi(void);
VV_API int32_t vv_isa_best(void);
VV_API const char *vv_isa_name(int32_t isa); /* NULL: not compiled in, or not on this machine */

/* Bytes of a packed [n][k] matrix. */
VV_API int64_t vv_packed_size(int64_t n, int64_t k);
/* w: int8 [n][k] row-major, values -127..127; out: vv_packed_size bytes; colsum: n rounded up to 16 values. */
VV_API int32_t vv_pack(const int8_t *w, int64_t n, int64_t k, int8_t *out, int32_t *colsum);
/* w: fp32 [n][k] row-major -> int8 and one scale per row (absmax / 127, round to nearest even). */
VV_API int32_t vv_quantize(const float *w, int64_t n, int64_t k, int8_t *out, float *scale);

/* Anonymous memory with huge pages where the system gives them; 30 % more bandwidth than small pages may give. */
VV_API void *vv_alloc(int64_t bytes);
VV_API void vv_release(void *p, int64_t bytes);

/* threads: <= 0 takes every CPU the process may use. The arrays behind `weights` must outlive the model.
 * NULL on bad shapes or no memory; vv_error() then says what. */
VV_API vv_model *vv_model_create(const vv_config *config, const vv_weights *weights, int32_t threads, int32_t isa);
VV_API void vv_model_free(vv_model *model);
VV_API const char *vv_error(void); /* of the calling thread's last failed call */

/* kind: VV_KV_*. Becomes resident as it is written. */
VV_API vv_kv *vv_kv_create(const vv_model *model, int32_t n_blocks, int32_t kind);
VV_API void vv_kv_free(vv_kv *kv);
VV_API int64_t vv_kv_block_bytes(const vv_kv *kv);
VV_API int32_t vv_kv_copy_block(vv_kv *kv, int32_t src, int32_t dst);
VV_API int32_t vv_kv_drop_blocks(vv_kv *kv, int32_t first, int32_t count); /* gives their memory back; reads as zero */

/* 0, VV_ABORTED (KV of the batch's positions is then undefined), or a negative error. `abort` may be NULL. */
VV_API int32_t vv_forward(vv_model *model, vv_kv *kv, const vv_batch *batch, const volatile int32_t *abort);

/* The logits [vocab] of one output row of the last pass of this model: 0 .. n_argmax + n_logits - 1, those of argmax_rows
 * first. Reads the head's weights again. */
VV_API int32_t vv_logits(vv_model *model, int32_t index, float *out);

/* Seconds per phase since create (VV_FLAG_PROFILE); returns the number of phases. out may be NULL. */
VV_API int32_t vv_profile(vv_model *model, double *out);
VV_API const char *vv_profile_name(int32_t phase);
VV_API void vv_profile_reset(vv_model *model);

/* out[m][n rounded up to 16] = a[m][k] . w^T, exactly; for tests and shapes' benchmarks. */
VV_API int32_t vv_gemm_int32(int32_t isa, const int8_t *a, int32_t m, const int8_t *packed, const int32_t *colsum,
                             int32_t n, int32_t k, int32_t *out);

/* Machine probes. kind 0: read bandwidth over `bytes` of memory, bytes/s; 1: int8 op/s of register-only products of
 * the best ISA; 2: bf16 flop/s likewise (0 without AMX). */
VV_API double vv_probe(int32_t kind, int32_t threads, int64_t bytes, double seconds);

#ifdef __cplusplus
}
#endif
#endif
