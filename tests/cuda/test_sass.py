"""Counting instructions in the text of either disassembler."""

from __future__ import annotations

from sparsegen.backends.cuda.sass import count_mnemonics, split_functions

CUOBJDUMP = """
\tcode for sm_90a
\t\tFunction : k
        /*0000*/                   LDC R1, c[0x0][0x28] ;                    /* 0x00000a00ff017b82 */
                                                                             /* 0x000e220000000800 */
        /*0010*/              @!P0 LDG.E.64 R2, desc[UR4][R2.64] ;           /* 0x0000000419027981 */
        /*0020*/               @P1 EXIT ;                                    /* 0x000000000000794d */
        /*0030*/                   DMMA.8x8x4 R4, R2, R6, R4 ;               /* 0x0000000602047 */
\t\tFunction : other
        /*0000*/                   EXIT ;                                    /* 0x000000000000794d */
"""
NVDISASM = """
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_2:
        /*0010*/              @!P0 LDG.E.64 R2, desc[UR4][R2.64] ;
        /*0020*/               @P1 EXIT ;
        /*0030*/                   DMMA.8x8x4 R4, R2, R6, R4  (*"a note"*);
//--------------------- .text.other --------------------------
\t.section\t.text.other,"ax",@progbits
.text.other:
        /*0000*/                   EXIT ;
"""


def test_both_texts_count_alike() -> None:
    for text in (CUOBJDUMP, NVDISASM):
        parts = split_functions(text)
        assert list(parts) == ["k", "other"]
        assert count_mnemonics(parts["k"]) == {"LDC": 1, "LDG": 1, "EXIT": 1, "DMMA": 1}
        assert count_mnemonics(parts["other"]) == {"EXIT": 1}
        assert count_mnemonics(text, full=True)["LDG.E.64"] == 1
