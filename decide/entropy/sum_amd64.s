#include "textflag.h"

// TERM turns a register of logits X into its terms: A = e^(x-most), X = that times
// the exponent. B and C are scratch. The order of operations is that of term in
// term.go. It is said once for registers of both widths: the constants are in
// MOST, SCALE, ROUNDER and TABLE, the others where CONSTANTS says.
#define TERM(X, A, B, C, MOST, SCALE, LEAST, ROUNDER, CUBIC, SQUARE, LINEAR, ONE, TABLE) \
	VSUBPS MOST, X, X    \
	VMULPS SCALE, X, X   \
	VMAXPS LEAST, X, X   /* z */ \
	VADDPS ROUNDER, X, A \
	VSUBPS ROUNDER, A, B \
	VSUBPS B, X, B       /* f */ \
	VMULPS CUBIC, B, C   \
	VADDPS SQUARE, C, C  \
	VMULPS B, C, C       \
	VADDPS LINEAR, C, C  \
	VMULPS B, C, C       \
	VADDPS ONE, C, C     /* 2^(f/8) */ \
	VPERMPS TABLE, A, B  \
	VPSLLD $20, A, A     \
	VPADDD A, B, B       /* 2^(n/8) */ \
	VMULPS C, B, A       \
	VMULPS A, X, X

#define TERM512(X, A, B, C) TERM(X, A, B, C, Z31, Z30, Z29, Z28, Z27, Z26, Z25, Z24, Z23)

#define TERM256(X, A, B, C) TERM(X, A, B, C, Y15, Y14, 64(R8), Y13, 192(R8), 256(R8), 320(R8), 384(R8), Y12)

// func sumAVX512(block *float32, groups int, most float32, constants *termConstants, lanes *laneSums)
TEXT ·sumAVX512(SB), NOSPLIT, $0-40
	MOVQ block+0(FP), SI
	MOVQ groups+8(FP), CX
	VBROADCASTSS most+16(FP), Z31
	MOVQ constants+24(FP), R8
	MOVQ lanes+32(FP), DI
	VMOVUPS (R8), Z30
	VMOVUPS 64(R8), Z29
	VMOVUPS 128(R8), Z28
	VMOVUPS 192(R8), Z27
	VMOVUPS 256(R8), Z26
	VMOVUPS 320(R8), Z25
	VMOVUPS 384(R8), Z24
	VMOVUPS 448(R8), Z23
	VMOVUPD (DI), Z16
	VMOVUPD 64(DI), Z17
	VMOVUPD 128(DI), Z18
	VMOVUPD 192(DI), Z19

group:
	VMOVUPS (SI), Z0
	VMOVUPS 64(SI), Z1
	VMOVUPS 128(SI), Z2
	VMOVUPS 192(SI), Z3
	TERM512(Z0, Z4, Z8, Z12)
	TERM512(Z1, Z5, Z9, Z13)
	TERM512(Z2, Z6, Z10, Z14)
	TERM512(Z3, Z7, Z11, Z15)

	VADDPS Z5, Z4, Z4
	VADDPS Z7, Z6, Z6
	VADDPS Z6, Z4, Z4
	VADDPS Z1, Z0, Z0
	VADDPS Z3, Z2, Z2
	VADDPS Z2, Z0, Z0
	VEXTRACTF64X4 $1, Z4, Y5
	VEXTRACTF64X4 $1, Z0, Y1
	VCVTPS2PD Y4, Z4
	VCVTPS2PD Y5, Z5
	VCVTPS2PD Y0, Z0
	VCVTPS2PD Y1, Z1
	VADDPD Z4, Z16, Z16
	VADDPD Z5, Z17, Z17
	VADDPD Z0, Z18, Z18
	VADDPD Z1, Z19, Z19

	ADDQ $256, SI
	DECQ CX
	JNZ group

	VMOVUPD Z16, (DI)
	VMOVUPD Z17, 64(DI)
	VMOVUPD Z18, 128(DI)
	VMOVUPD Z19, 192(DI)
	VZEROUPPER
	RET

// WIDEN adds the lanes of Y to eight sums, which are in memory.
#define WIDEN(X, Y, SCRATCH, SUMS, NEXT) \
	VCVTPS2PD X, SCRATCH          \
	VADDPD SUMS, SCRATCH, SCRATCH \
	VMOVUPD SCRATCH, SUMS         \
	VEXTRACTF128 $1, Y, X         \
	VCVTPS2PD X, SCRATCH          \
	VADDPD NEXT, SCRATCH, SCRATCH \
	VMOVUPD SCRATCH, NEXT

// HALF is one half of the lanes of a group, which begins at FROM.
#define HALF(R0, R1, R2, R3, S0, S1, W0, W1) \
	VMOVUPS R0, Y0          \
	VMOVUPS R1, Y1          \
	TERM256(Y0, Y2, Y4, Y6) \
	TERM256(Y1, Y3, Y5, Y7) \
	VADDPS Y3, Y2, Y8       \
	VADDPS Y1, Y0, Y9       \
	VMOVUPS R2, Y0          \
	VMOVUPS R3, Y1          \
	TERM256(Y0, Y2, Y4, Y6) \
	TERM256(Y1, Y3, Y5, Y7) \
	VADDPS Y3, Y2, Y2       \
	VADDPS Y1, Y0, Y0       \
	VADDPS Y2, Y8, Y8       \
	VADDPS Y0, Y9, Y9       \
	WIDEN(X8, Y8, Y10, S0, S1) \
	WIDEN(X9, Y9, Y11, W0, W1)

// func sumAVX2(block *float32, groups int, most float32, constants *termConstants, lanes *laneSums)
TEXT ·sumAVX2(SB), NOSPLIT, $0-40
	MOVQ block+0(FP), SI
	MOVQ groups+8(FP), CX
	VBROADCASTSS most+16(FP), Y15
	MOVQ constants+24(FP), R8
	MOVQ lanes+32(FP), DI
	VMOVUPS (R8), Y14
	VMOVUPS 128(R8), Y13
	VMOVUPS 448(R8), Y12

group:
	HALF(0(SI), 64(SI), 128(SI), 192(SI), 0(DI), 32(DI), 128(DI), 160(DI))
	HALF(32(SI), 96(SI), 160(SI), 224(SI), 64(DI), 96(DI), 192(DI), 224(DI))
	ADDQ $256, SI
	DECQ CX
	JNZ group
	VZEROUPPER
	RET
