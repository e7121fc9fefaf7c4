"""Names that kernels and their values must not have: C++'s own, those that headers of CUDA and the C library declare.

nvcc includes these headers in every file.  A kernel is an ``extern "C"`` function, so one called ``random`` would
redeclare the C library's.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

#: C++'s, alternative tokens and contextual ones included.
KEYWORDS: Final = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl "
    "concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default "
    "delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long "
    "mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch "
    "template this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void "
    "volatile wchar_t while xor xor_eq".split()
)
#: Functions, objects and types of math.h, stdlib.h, string.h, stdio.h, time.h, ctype.h, cuda_runtime.h, cuda_fp16.h and
#: cuda_bf16.h (CUDA 13.0; glibc 2.36, and what 2.38 to 2.41 added), without those of _FAMILIES and the variants of one
#: that _VARIANT makes.
_LIBRARY: Final = frozenset(
    "L_ctermid L_cuserid L_tmpnam P_tmpdir a64l abort abs acos acosh acospi aligned_alloc alloca arc4random "
    "arc4random_buf arc4random_uniform asctime asin asinh asinpi asprintf assert assert_perror atan atan2 atan2pi "
    "atanh atanpi atexit atof atoi atol bcmp bcopy blockDim blockIdx bsearch bzero calloc canonicalize "
    "canonicalize_file_name cbrt ceil clearenv clearerr clock clock_adjtime clock_getcpuclockid clock_getres "
    "clock_gettime clock_nanosleep clock_settime compoundn copysign cos cosh cospi ctermid ctime cuserid "
    "cyl_bessel_i0 cyl_bessel_i1 daddl daylight ddivl dfmal difftime dim3 div dmull dprintf drand48 drem dsqrtl dsubl "
    "dysize ecvt erand48 erf erfc erfcinv erfcx erfinv exit exp exp10 exp10m1 exp2 exp2m1 explicit_bzero expm1 fabs "
    "fadd fclose fcloseall fcvt fd_mask fd_set fdim fdiv fdivide fdopen feof ferror fflush ffma ffs ffsll fgetc "
    "fgetpos fgets fileno finite flockfile floor fma fmax fmaximum fmaximum_mag fmaximum_mag_num fmaximum_num fmaxmag "
    "fmemopen fmin fminimum fminimum_mag fminimum_mag_num fminimum_num fminmag fmod fmul fopen fopencookie fprintf "
    "fputc fputs fread free freopen frexp fromfp fromfpx fscanf fseek fseeko fsetpos fsqrt fsub ftell ftello "
    "ftrylockfile funlockfile fwrite gamma gcvt getc getchar getdate getdate_err getdelim getenv getline getloadavg "
    "getpayload getpt getsubopt getw gmtime grantpt gridDim half half2 htobe16 htobe32 htobe64 htole16 htole32 "
    "htole64 hypot ilogb initstate isalnum isalpha isascii isblank iscntrl isctype isdigit isgraph isinff isinfl "
    "islower isnanf isnanl isprint ispunct isspace issubnormal isupper isxdigit j0 j1 jn jrand48 l64a labs lcong48 "
    "ldexp ldiv lgamma libraryPropertyType linux llabs lldiv llmax llmin llogb llrint llround localtime log log10 "
    "log10p1 log1p log2 log2p1 logb logp1 lrand48 lrint lround main malloc math_errhandling max mblen mbstowcs mbtowc "
    "memccpy memcmp memcpy memfrob memmem memmove mempcpy memset min mkdtemp mkostemp mkostemps mkstemp mkstemps "
    "mktemp mktime modf mrand48 nan nanosleep nearbyint nextafter nextdown nexttoward nextup norm norm3d norm4d "
    "normcdf normcdfinv nrand48 nv nv_bfloat16 nv_bfloat162 nv_half nv_half2 obstack_printf obstack_vprintf offsetof "
    "on_exit open_memstream pclose perror popen posix_memalign posix_openpt pow pown powr printf pselect ptsname putc "
    "putchar putenv puts putw qecvt qfcvt qgcvt qsort quick_exit rand random rcbrt realloc reallocarray realpath "
    "remainder remove remquo rename renameat renameat2 rewind rhypot rint rnorm rnorm3d rnorm4d rootn round roundeven "
    "rpmatch rsqrt scalb scalbln scalbn scanf secure_getenv seed48 select setbuf setbuffer setenv setlinebuf "
    "setpayload setpayloadsig setstate setvbuf sigabbrev_np sigdescr_np signgam significand sin sincos sincospi sinh "
    "sinpi snprintf sprintf sqrt srand srand48 srandom sscanf std stderr stdin stdout stpcpy stpncpy strcasecmp "
    "strcat strcmp strcoll strcpy strcspn strdup strdupa strerror strerrordesc_np strerrorname_np strfromd strfromf "
    "strfromf32 strfromf32x strfromf64x strfroml strfry strftime strlcat strlcpy strlen strncasecmp strncat strncmp "
    "strncpy strndup strndupa strnlen strptime strsep strsignal strspn strtod strtof strtof32 strtof32x strtof64x "
    "strtok strtol strtold strtoq strtoul strtouq strverscmp strxfrm system tan tanh tanpi tempnam tgamma threadIdx "
    "time timegm timelocal timer_create timer_delete timer_getoverrun timer_gettime timer_settime timespec_get "
    "timespec_getres timezone tmpfile tmpnam toascii tolower totalorder totalordermag toupper trunc tzname tzset "
    "u_char u_int u_long u_short ufromfp ufromfpx uint ullmax ullmin ulong umax umin ungetc unix unlockpt unsetenv "
    "ushort va_list valloc vasprintf vdprintf vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf warpSize "
    "wcstombs wctomb y0 y1 yn".split()
)
_VARIANT: Final = re.compile(r"(?:f|l|f32|f64|f32x|f64x|64|q)?(?:_r|_l|_np)?")
#: Groups of such names; macros are in capitals.
_FAMILIES: Final = re.compile(
    r"cuda\w*|CU\w+|pthread\w*|\w+_t|\w+_unlocked|(u?(char|short|int|long|longlong)|float|double)\d\w*"
    r"|[A-Z][A-Z0-9_]+|M_[A-Z0-9]\w*|NV_\w+|HUGE_VAL\w*|f(32|64)x?(add|sub|mul|div|sqrt|fma)\w*"
    r"|(hto)?(be|le)(16|32|64)(toh)?|make_\w+\d|atomic[A-Z]\w*|hsqrt"
)
#: Functions and templates that the CUDA printer defines in the same file (backends/cuda/ptx_ops.py).
_HELPERS: Final = re.compile(
    r"smem|Regs|Param|TensorMap|(mma|wgmma|ldmatrix|cp_async|mbar|fence)(_\w+)?|cluster_\w+|bar_sync|(bulk|tensor)_copy|pack16|prmt|exp2_approx|movmatrix|scan_up|setmaxnreg_(inc|dec)|launch_(next|wait)|(ld|st)_tagged_(64|128|4x32)(_sys)?(_where)?|trap|read_clock|to_tf32|widen_e4m3|add_f16x2|quotient_f(32|64)"
)


def symbol(name: str) -> str:
    """What the kernel of a stencil or update is called: ``name``, or ``name_kernel`` where C++ or CUDA has it already.

    Names that begin with ``_`` are the compiler's own: a ``k`` goes before it.
    """
    if name.startswith("_"):
        name = f"k{name}"
    return f"{name}_kernel" if reserved(name) else name


@lru_cache(maxsize=4096)
def reserved(name: str) -> bool:
    """Whether C++, CUDA, the C library or the printer has a name that does not begin with ``_``."""
    if name in KEYWORDS:
        return True
    if "_kernel" in name:  # ours: what symbol() and the passes make of such a name is free
        return False
    if _FAMILIES.fullmatch(name) or _HELPERS.fullmatch(name):
        return True
    return any(name[:end] in _LIBRARY and _VARIANT.fullmatch(name, end) for end in range(2, len(name) + 1))
