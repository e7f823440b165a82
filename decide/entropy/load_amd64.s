#include "textflag.h"

// Loads go 32 logits at a time: to fp32, which is exact, into the block, with the
// largest in Z2 and Z3 (Y2 to Y5), and in K2 (Y6) whether any is NaN. Meanwhile the
// next block is asked for: it comes while the sums of this one are made. Beyond the
// end of a row that asks for nothing.

#define SEEN512(X, MOST) \
	VMOVUPS X, (DI)       \
	VMAXPS X, MOST, MOST  \
	VCMPPS $3, X, X, K1   \
	KORW K1, K2, K2       \
	ADDQ $64, DI

#define SEEN256(X, MOST) \
	VMOVUPS X, (DI)      \
	VMAXPS X, MOST, MOST \
	VCMPPS $3, X, X, Y1  \
	VORPS Y1, Y6, Y6     \
	ADDQ $32, DI

#define BEGIN512 \
	MOVQ block+0(FP), DI    \
	MOVQ from+8(FP), SI     \
	MOVQ n+16(FP), CX       \
	MOVL $0xff800000, AX    \
	VPBROADCASTD AX, Z2     \
	VMOVUPS Z2, Z3          \
	KXORW K2, K2, K2

#define BEGIN256 \
	MOVQ block+0(FP), DI    \
	MOVQ from+8(FP), SI     \
	MOVQ n+16(FP), CX       \
	MOVL $0xff800000, AX    \
	VMOVD AX, X2            \
	VPBROADCASTD X2, Y2     \
	VMOVUPS Y2, Y3          \
	VMOVUPS Y2, Y4          \
	VMOVUPS Y2, Y5          \
	VXORPS Y6, Y6, Y6

// MOST256 returns the largest of Y2.
#define MOST256 \
	VEXTRACTF128 $1, Y2, X1  \
	VMAXPS X1, X2, X2        \
	VMOVHLPS X2, X2, X1      \
	VMAXPS X1, X2, X2        \
	VMOVSHDUP X2, X1         \
	VMAXSS X1, X2, X2        \
	VMOVSS X2, most+24(FP)   \
	VZEROUPPER

#define END512 \
	VMAXPS Z3, Z2, Z2        \
	VEXTRACTF64X4 $1, Z2, Y1 \
	VMAXPS Y1, Y2, Y2        \
	KMOVW K2, AX             \
	TESTL AX, AX             \
	SETNE unordered+28(FP)   \
	MOST256

#define END256 \
	VMAXPS Y3, Y2, Y2        \
	VMAXPS Y5, Y4, Y4        \
	VMAXPS Y4, Y2, Y2        \
	VMOVMSKPS Y6, AX         \
	TESTL AX, AX             \
	SETNE unordered+28(FP)   \
	MOST256

// func loadF32AVX512(block, from *float32, n int) (most float32, unordered bool)
TEXT ·loadF32AVX512(SB), NOSPLIT, $0-29
	BEGIN512

next:
	PREFETCHT0 8192(SI)
	PREFETCHT0 8256(SI)
	VMOVUPS (SI), Z0
	VMOVUPS 64(SI), Z4
	SEEN512(Z0, Z2)
	SEEN512(Z4, Z3)
	ADDQ $128, SI
	SUBQ $32, CX
	JNZ next
	END512
	RET

// func loadBF16AVX512(block *float32, from *BF16, n int) (most float32, unordered bool)
TEXT ·loadBF16AVX512(SB), NOSPLIT, $0-29
	BEGIN512

next:
	PREFETCHT0 4096(SI)
	VPMOVZXWD (SI), Z0
	VPMOVZXWD 32(SI), Z4
	VPSLLD $16, Z0, Z0
	VPSLLD $16, Z4, Z4
	SEEN512(Z0, Z2)
	SEEN512(Z4, Z3)
	ADDQ $64, SI
	SUBQ $32, CX
	JNZ next
	END512
	RET

// func loadF16AVX512(block *float32, from *F16, n int) (most float32, unordered bool)
TEXT ·loadF16AVX512(SB), NOSPLIT, $0-29
	BEGIN512

next:
	PREFETCHT0 4096(SI)
	VCVTPH2PS (SI), Z0
	VCVTPH2PS 32(SI), Z4
	SEEN512(Z0, Z2)
	SEEN512(Z4, Z3)
	ADDQ $64, SI
	SUBQ $32, CX
	JNZ next
	END512
	RET

// func loadF32AVX2(block, from *float32, n int) (most float32, unordered bool)
TEXT ·loadF32AVX2(SB), NOSPLIT, $0-29
	BEGIN256

next:
	PREFETCHT0 8192(SI)
	PREFETCHT0 8256(SI)
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y7
	VMOVUPS 64(SI), Y8
	VMOVUPS 96(SI), Y9
	SEEN256(Y0, Y2)
	SEEN256(Y7, Y3)
	SEEN256(Y8, Y4)
	SEEN256(Y9, Y5)
	ADDQ $128, SI
	SUBQ $32, CX
	JNZ next
	END256
	RET

// func loadBF16AVX2(block *float32, from *BF16, n int) (most float32, unordered bool)
TEXT ·loadBF16AVX2(SB), NOSPLIT, $0-29
	BEGIN256

next:
	PREFETCHT0 4096(SI)
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y7
	VPMOVZXWD 32(SI), Y8
	VPMOVZXWD 48(SI), Y9
	VPSLLD $16, Y0, Y0
	VPSLLD $16, Y7, Y7
	VPSLLD $16, Y8, Y8
	VPSLLD $16, Y9, Y9
	SEEN256(Y0, Y2)
	SEEN256(Y7, Y3)
	SEEN256(Y8, Y4)
	SEEN256(Y9, Y5)
	ADDQ $64, SI
	SUBQ $32, CX
	JNZ next
	END256
	RET

// func loadF16AVX2(block *float32, from *F16, n int) (most float32, unordered bool)
TEXT ·loadF16AVX2(SB), NOSPLIT, $0-29
	BEGIN256

next:
	PREFETCHT0 4096(SI)
	VCVTPH2PS (SI), Y0
	VCVTPH2PS 16(SI), Y7
	VCVTPH2PS 32(SI), Y8
	VCVTPH2PS 48(SI), Y9
	SEEN256(Y0, Y2)
	SEEN256(Y7, Y3)
	SEEN256(Y8, Y4)
	SEEN256(Y9, Y5)
	ADDQ $64, SI
	SUBQ $32, CX
	JNZ next
	END256
	RET
