#include "textflag.h"

// EXP makes X = e^X, with its constants at R8 and scratch A, B, C:
// the order of operations is that of exp in exp.go.
#define EXP(X, A, B, C) \
	VCMPPS $1, (R8), X, C   /* below expLeast */ \
	VMINPS 32(R8), X, X     \
	VMULPS 64(R8), X, A     \
	VADDPS 96(R8), A, A     \
	VSUBPS 96(R8), A, A     /* n */ \
	VMULPS 128(R8), A, B    \
	VSUBPS B, X, X          \
	VMULPS 160(R8), A, B    \
	VSUBPS B, X, X          /* r */ \
	VCVTPS2DQ A, A          \
	VPADDD 448(R8), A, A    \
	VPSLLD $23, A, A        /* 2^n */ \
	VMULPS 192(R8), X, B    \
	VADDPS 224(R8), B, B    \
	VMULPS X, B, B          \
	VADDPS 256(R8), B, B    \
	VMULPS X, B, B          \
	VADDPS 288(R8), B, B    \
	VMULPS X, B, B          \
	VADDPS 320(R8), B, B    \
	VMULPS X, B, B          \
	VADDPS 352(R8), B, B    \
	VMULPS X, B, B          \
	VADDPS 384(R8), B, B    \
	VMULPS X, B, B          \
	VADDPS 416(R8), B, B    \
	VMULPS A, B, X          \
	VANDNPS X, C, X

// func maxAVX2(x *float32, n int) float32
TEXT ·maxAVX2(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1

lanes:
	VMAXPS (SI), Y0, Y0
	VMAXPS 32(SI), Y1, Y1
	ADDQ $64, SI
	SUBQ $16, CX
	JNZ lanes

	VMAXPS Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VMOVHLPS X0, X0, X1
	VMAXPS X1, X0, X0
	VMOVSHDUP X0, X1
	VMAXSS X1, X0, X0
	VMOVSS X0, ret+16(FP)
	VZEROUPPER
	RET

// func expSumAVX2(x *float32, n int, table *[15][8]float32, shift float32) float32
TEXT ·expSumAVX2(SB), NOSPLIT, $0-36
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ table+16(FP), R8
	VBROADCASTSS shift+24(FP), Y15
	VXORPS Y13, Y13, Y13
	VXORPS Y14, Y14, Y14

lanes:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VSUBPS Y15, Y0, Y0
	VSUBPS Y15, Y1, Y1
	EXP(Y0, Y2, Y3, Y4)
	EXP(Y1, Y5, Y6, Y7)
	VMOVUPS Y0, (SI)
	VMOVUPS Y1, 32(SI)
	VADDPS Y0, Y13, Y13
	VADDPS Y1, Y14, Y14
	ADDQ $64, SI
	SUBQ $16, CX
	JNZ lanes

	VADDPS Y14, Y13, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPS X1, X0, X0
	VMOVHLPS X0, X0, X1
	VADDPS X1, X0, X0
	VMOVSHDUP X0, X1
	VADDSS X1, X0, X0
	VMOVSS X0, ret+32(FP)
	VZEROUPPER
	RET

// func gateAVX2(gate, up *float32, n int, table *[15][8]float32)
TEXT ·gateAVX2(SB), NOSPLIT, $0-32
	MOVQ gate+0(FP), SI
	MOVQ up+8(FP), DI
	MOVQ n+16(FP), CX
	MOVQ table+24(FP), R8
	VMOVUPS 416(R8), Y15 // 1
	VPCMPEQD Y14, Y14, Y14
	VPSLLD $31, Y14, Y14 // the sign

lanes:
	VMOVUPS (SI), Y8
	VMOVUPS 32(SI), Y9
	VXORPS Y14, Y8, Y0
	VXORPS Y14, Y9, Y1
	EXP(Y0, Y2, Y3, Y4)
	EXP(Y1, Y5, Y6, Y7)
	VADDPS Y15, Y0, Y0
	VADDPS Y15, Y1, Y1
	VDIVPS Y0, Y8, Y8
	VDIVPS Y1, Y9, Y9
	VMULPS (DI), Y8, Y8
	VMULPS 32(DI), Y9, Y9
	VMOVUPS Y8, (SI)
	VMOVUPS Y9, 32(SI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ lanes
	VZEROUPPER
	RET
