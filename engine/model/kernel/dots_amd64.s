#include "textflag.h"

// Strides come in bytes, lengths in elements. All numbers of rows are multiples
// of 4; lengths are multiples of 16. One dot product is one register of AVX-512
// or two of AVX2, and the trees at the ends add lane l to l+8, l+4, l+2, l+1.

// func dotsAVX2(out *float32, outStride int, w *float32, wStride, rows int, x *float32, xStride, vectors, n int)
//
// Four rows and one vector at a time: 8 sums, which is as many as the adders
// have in flight.
TEXT ·dotsAVX2(SB), NOSPLIT, $0-72
	MOVQ out+0(FP), DI
	MOVQ outStride+8(FP), R8
	MOVQ w+16(FP), SI
	MOVQ wStride+24(FP), R9
	MOVQ xStride+48(FP), R11
	MOVQ n+64(FP), R12
	SHLQ $2, R12             // bytes of a vector
	LEAQ (R9)(R9*2), R10     // 3 strides

rows:
	MOVQ x+40(FP), BX
	MOVQ vectors+56(FP), CX
	MOVQ DI, DX

vectors:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	MOVQ SI, R13             // row 0; 1 and 2 at strides
	LEAQ (SI)(R10*1), R14    // row 3
	XORQ AX, AX

elements:
	VMOVUPS (BX)(AX*1), Y8
	VMOVUPS 32(BX)(AX*1), Y9
	VMULPS (R13), Y8, Y10
	VADDPS Y10, Y0, Y0
	VMULPS 32(R13), Y9, Y11
	VADDPS Y11, Y1, Y1
	VMULPS (R13)(R9*1), Y8, Y12
	VADDPS Y12, Y2, Y2
	VMULPS 32(R13)(R9*1), Y9, Y13
	VADDPS Y13, Y3, Y3
	VMULPS (R13)(R9*2), Y8, Y10
	VADDPS Y10, Y4, Y4
	VMULPS 32(R13)(R9*2), Y9, Y11
	VADDPS Y11, Y5, Y5
	VMULPS (R14), Y8, Y12
	VADDPS Y12, Y6, Y6
	VMULPS 32(R14), Y9, Y13
	VADDPS Y13, Y7, Y7
	ADDQ $64, R13
	ADDQ $64, R14
	ADDQ $64, AX
	CMPQ AX, R12
	JLT elements

	VADDPS Y1, Y0, Y0
	VADDPS Y3, Y2, Y2
	VADDPS Y5, Y4, Y4
	VADDPS Y7, Y6, Y6
	VEXTRACTF128 $1, Y0, X8
	VEXTRACTF128 $1, Y2, X9
	VEXTRACTF128 $1, Y4, X10
	VEXTRACTF128 $1, Y6, X11
	VADDPS X8, X0, X0
	VADDPS X9, X2, X2
	VADDPS X10, X4, X4
	VADDPS X11, X6, X6
	VUNPCKLPS X2, X0, X8     // rows 0 and 1: lanes 0 0 1 1
	VUNPCKHPS X2, X0, X9     // lanes 2 2 3 3
	VADDPS X9, X8, X8
	VUNPCKLPS X6, X4, X10
	VUNPCKHPS X6, X4, X11
	VADDPS X11, X10, X10
	VMOVLHPS X10, X8, X9
	VMOVHLPS X8, X10, X10
	VADDPS X10, X9, X9
	VMOVUPS X9, (DX)

	ADDQ R8, DX
	ADDQ R11, BX
	DECQ CX
	JNZ vectors

	LEAQ (SI)(R9*4), SI
	ADDQ $16, DI
	SUBQ $4, rows+32(FP)
	JNZ rows
	VZEROUPPER
	RET

// func dotAVX2(a, b *float32, n int) float32
TEXT ·dotAVX2(SB), NOSPLIT, $0-28
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), BX
	MOVQ n+16(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1

one:
	VMOVUPS (BX), Y2
	VMOVUPS 32(BX), Y3
	VMULPS (SI), Y2, Y2
	VMULPS 32(SI), Y3, Y3
	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	ADDQ $64, SI
	ADDQ $64, BX
	SUBQ $16, CX
	JNZ one

	VADDPS Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPS X1, X0, X0
	VMOVHLPS X0, X0, X1
	VADDPS X1, X0, X0
	VMOVSHDUP X0, X1
	VADDSS X1, X0, X0
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	RET

// func dotsAVX512(out *float32, outStride int, w *float32, wStride, rows int, x *float32, xStride, vectors, n int)
//
// As dotsAVX2, with one register for one dot product.
TEXT ·dotsAVX512(SB), NOSPLIT, $0-72
	MOVQ out+0(FP), DI
	MOVQ outStride+8(FP), R8
	MOVQ w+16(FP), SI
	MOVQ wStride+24(FP), R9
	MOVQ xStride+48(FP), R11
	MOVQ n+64(FP), R12
	SHLQ $2, R12
	LEAQ (R9)(R9*2), R10

rows:
	MOVQ x+40(FP), BX
	MOVQ vectors+56(FP), CX
	MOVQ DI, DX

vectors:
	VXORPS X0, X0, X0
	VXORPS X1, X1, X1
	VXORPS X2, X2, X2
	VXORPS X3, X3, X3
	MOVQ SI, R13
	LEAQ (SI)(R10*1), R14
	XORQ AX, AX

elements:
	VMOVUPS (BX)(AX*1), Z8
	VMULPS (R13), Z8, Z9
	VADDPS Z9, Z0, Z0
	VMULPS (R13)(R9*1), Z8, Z10
	VADDPS Z10, Z1, Z1
	VMULPS (R13)(R9*2), Z8, Z11
	VADDPS Z11, Z2, Z2
	VMULPS (R14), Z8, Z12
	VADDPS Z12, Z3, Z3
	ADDQ $64, R13
	ADDQ $64, R14
	ADDQ $64, AX
	CMPQ AX, R12
	JLT elements

	VSHUFF64X2 $0x44, Z1, Z0, Z4
	VSHUFF64X2 $0xEE, Z1, Z0, Z5
	VADDPS Z5, Z4, Z4           // rows 0 and 1, 8 lanes each
	VSHUFF64X2 $0x44, Z3, Z2, Z6
	VSHUFF64X2 $0xEE, Z3, Z2, Z7
	VADDPS Z7, Z6, Z6           // rows 2 and 3
	VSHUFF64X2 $0x88, Z6, Z4, Z0
	VSHUFF64X2 $0xDD, Z6, Z4, Z1
	VADDPS Z1, Z0, Z0           // 4 rows, 4 lanes each
	VEXTRACTF128 $1, Y0, X1
	VEXTRACTF32X4 $2, Z0, X2
	VEXTRACTF32X4 $3, Z0, X3
	VUNPCKLPS X1, X0, X8
	VUNPCKHPS X1, X0, X9
	VADDPS X9, X8, X8
	VUNPCKLPS X3, X2, X10
	VUNPCKHPS X3, X2, X11
	VADDPS X11, X10, X10
	VMOVLHPS X10, X8, X9
	VMOVHLPS X8, X10, X10
	VADDPS X10, X9, X9
	VMOVUPS X9, (DX)

	ADDQ R8, DX
	ADDQ R11, BX
	DECQ CX
	JNZ vectors

	LEAQ (SI)(R9*4), SI
	ADDQ $16, DI
	SUBQ $4, rows+32(FP)
	JNZ rows
	VZEROUPPER
	RET

// MAC4 multiplies one vector by the four rows and adds to four sums.
#define MAC4(X, A, B, C, D) \
	VMULPS X, Z16, Z24   \
	VADDPS Z24, A, A     \
	VMULPS X, Z17, Z25   \
	VADDPS Z25, B, B     \
	VMULPS X, Z18, Z26   \
	VADDPS Z26, C, C     \
	VMULPS X, Z19, Z27   \
	VADDPS Z27, D, D

// FOLD4 leaves in A, for each of four vectors, four lanes of its sum with a row.
#define FOLD4(A, B, C, D) \
	VSHUFF64X2 $0x44, B, A, Z16 \
	VSHUFF64X2 $0xEE, B, A, Z17 \
	VADDPS Z17, Z16, Z16        \
	VSHUFF64X2 $0x44, D, C, Z18 \
	VSHUFF64X2 $0xEE, D, C, Z19 \
	VADDPS Z19, Z18, Z18        \
	VSHUFF64X2 $0x88, Z18, Z16, Z17 \
	VSHUFF64X2 $0xDD, Z18, Z16, Z19 \
	VADDPS Z19, Z17, A

// func dots4AVX512(out *float32, outStride int, w *float32, wStride, rows int, x *float32, xStride, vectors, n int)
//
// Four rows and four vectors at a time; vectors is a multiple of 4. Z0…Z3 are
// row 0 with vectors 0…3, Z4…Z7 row 1, and so on.
TEXT ·dots4AVX512(SB), NOSPLIT, $0-72
	MOVQ out+0(FP), DI
	MOVQ outStride+8(FP), R8
	MOVQ w+16(FP), SI
	MOVQ wStride+24(FP), R9
	MOVQ xStride+48(FP), R11
	MOVQ n+64(FP), R12
	SHLQ $2, R12

rows:
	MOVQ x+40(FP), BX
	MOVQ vectors+56(FP), CX
	MOVQ DI, DX

vectors:
	VXORPS X0, X0, X0
	VXORPS X1, X1, X1
	VXORPS X2, X2, X2
	VXORPS X3, X3, X3
	VXORPS X4, X4, X4
	VXORPS X5, X5, X5
	VXORPS X6, X6, X6
	VXORPS X7, X7, X7
	VXORPS X8, X8, X8
	VXORPS X9, X9, X9
	VXORPS X10, X10, X10
	VXORPS X11, X11, X11
	VXORPS X12, X12, X12
	VXORPS X13, X13, X13
	VXORPS X14, X14, X14
	VXORPS X15, X15, X15
	MOVQ SI, R13
	LEAQ (R9)(R9*2), R14
	ADDQ SI, R14             // row 3
	MOVQ BX, AX
	LEAQ (R11)(R11*2), R10
	ADDQ BX, R10             // vector 3
	XORQ R15, R15

elements:
	VMOVUPS (R13), Z16
	VMOVUPS (R13)(R9*1), Z17
	VMOVUPS (R13)(R9*2), Z18
	VMOVUPS (R14), Z19
	VMOVUPS (AX), Z20
	VMOVUPS (AX)(R11*1), Z21
	VMOVUPS (AX)(R11*2), Z22
	VMOVUPS (R10), Z23
	MAC4(Z20, Z0, Z4, Z8, Z12)
	MAC4(Z21, Z1, Z5, Z9, Z13)
	MAC4(Z22, Z2, Z6, Z10, Z14)
	MAC4(Z23, Z3, Z7, Z11, Z15)
	ADDQ $64, R13
	ADDQ $64, R14
	ADDQ $64, AX
	ADDQ $64, R10
	ADDQ $64, R15
	CMPQ R15, R12
	JLT elements

	FOLD4(Z0, Z1, Z2, Z3)
	FOLD4(Z4, Z5, Z6, Z7)
	FOLD4(Z8, Z9, Z10, Z11)
	FOLD4(Z12, Z13, Z14, Z15)
	VUNPCKLPS Z4, Z0, Z1     // rows 0 and 1: lanes 0 0 1 1 of each vector
	VUNPCKHPS Z4, Z0, Z2     // lanes 2 2 3 3
	VADDPS Z2, Z1, Z1
	VUNPCKLPS Z12, Z8, Z3    // rows 2 and 3
	VUNPCKHPS Z12, Z8, Z5
	VADDPS Z5, Z3, Z3
	VUNPCKLPD Z3, Z1, Z2
	VUNPCKHPD Z3, Z1, Z5
	VADDPS Z5, Z2, Z0        // rows 0…3 of each vector
	LEAQ (R8)(R8*2), R10
	VMOVUPS X0, (DX)
	VEXTRACTF32X4 $1, Z0, (DX)(R8*1)
	VEXTRACTF32X4 $2, Z0, (DX)(R8*2)
	VEXTRACTF32X4 $3, Z0, (DX)(R10*1)

	LEAQ (DX)(R8*4), DX
	LEAQ (BX)(R11*4), BX
	SUBQ $4, CX
	JNZ vectors

	LEAQ (SI)(R9*4), SI
	ADDQ $16, DI
	SUBQ $4, rows+32(FP)
	JNZ rows
	VZEROUPPER
	RET
