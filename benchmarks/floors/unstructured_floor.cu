// A measured floor for unstructured SpMM C[M,N] = A_sparse[M,K] B[K,N] on sm_90a: f16 in / f32 sums / f16 out, and f32 (FFMA).
// Hand-written CUDA to run beside generated kernels, cuBLAS (dense) and cuSPARSE (CSR) in one call on one GPU. A figure to beat, not a style.
// build: nvcc -arch=sm_90a -O3 -std=c++17 -o unstructured_floor unstructured_floor.cu -lcublas -lcusparse      (70-90 s)
// run:   ./unstructured_floor [--n 32,128,256,512] [--f16] [--clustered] [--graphs] [--graph NAME] FILE.smtx|FILE.mtx ...
//        ./unstructured_floor --stats FILE... (host only: what the BSA order does to a matrix)
// prints: RES,matrix,M,K,nnz,sparsity,N,precision,system,config,hot_us,cold_us,rel_err,byte_floor_us: of each system the configuration best when hot;
//   hot = graph of up to 20 launches, median of 7; cold = 256 MB memset before a launch timed by events, median of 9 (event overhead included);
//   byte_floor = CSR (16-bit columns where K <= 65536) + B + C once at 4.3 TB/s. Every configuration is checked against a float64 host reference over
//   poisoned output (all rows, or 1508 rows incl. the longest above 6e8 products) before it is timed: f16 < 2e-3, f32 < 2e-5.
//   cuSPARSE f16 exceeds that on long power-law rows (3e-3: "WRONG ... (cuSPARSE)"); it is timed all the same.
//
// SYSTEMS. "Strip" kernels: grid (row groups, N / strip width); a strip is K rows x RB bytes of B (RB 128 or 64), loaded whole by TMA with the
// 128/64-byte swizzle, one mbarrier per 128 rows; A goes by CTA as one contiguous blob (one bulk copy). smem holds K <= ~1700 (RB 128), ~3400 (RB 64).
//  D1tile    non-empty 16x16 tiles stored whole in mma A-fragment order, LDG.128 to registers 2-4 tiles ahead; B by ldmatrix.trans; KS warps split a row
//            group's tiles, summed through smem.
//  D2scatter 4 B an entry {f16 value, 16-bit position in the warp's 16G x KC tile}, ordered to spread the banks; STS.U16 into the zeroed tile, ldmatrix, mma,
//            then the same positions are zeroed again.
//  Vvec8     8x1 vectors, the sparse operand on the n side of m16n8k16 (FlashSparse's swap): 16 vectors = 16 u16 rows of B + 256 B fragment;
//            ldmatrix.x4.trans takes its row addresses from those indices, so the gather is free; the vectors of a window are ordered so
//            that 8 in a row differ mod 8 (no bank conflict under the swizzle); movmatrix turns the result. +bsa: rows in the paper's order.
//  C16strip  CUDA cores: team of RB/16 lanes, LDS.128 = 8 halves; 4 B entries in quads; TPR teams a row; rows dealt to the CTAs by length (snake).
//  C32strip  the same in f32, R x 1 vectors (R = 1, 2, 4 rows share a load of B); GL1: A read from global a quad ahead, GL0: from smem.
//  Ggather   no strip: team of T lanes (16 B each) a row piece, 8 gathers of B in flight; rows sorted by length class, cut at 128/512 nonzeros; the last
//            piece to finish adds the pieces' f32 partial sums in order (deterministic). Graphs, and K too long for a strip.
//  Hhybrid   BSA-SpMM in ONE launch: CTA = 32 reordered rows x 64*CW columns; tiles 32x32 denser than delta by mma over a TMA ring (stage = B rows + A tile),
//            accumulators to smem, then the remainder by CUDA cores on top, and the store to the original row. No atomics.
//
// MEASURED (H200, 2026-11-22; all in research/h200-unstructured-floor.csv), us hot, N = 128 / 512; empty kernel in a graph 0.69:
//   2048x512   f16 .7   D1 4.89 / 8.14   cuBLAS 3.43 / 4.39   cuSPARSE 16.1 / 53.8        f32 .7   C32 12.2 / 41.3  cuBLAS 12.8 / 29.2  cuSPARSE 15.3 / 50.6
//              f16 .9   D1 4.90 / 8.12   cuBLAS 3.45 / 4.30   cuSPARSE  8.3 / 29.3        f32 .9   C32  6.7 / 15.4  cuBLAS 12.8 / 29.3  cuSPARSE  8.1 / 26.5
//              f16 .98  V  3.77 / 5.26   cuBLAS 3.45 / 4.23   cuSPARSE  5.2 / 13.3        f32 .98  C32  4.5 /  6.4  cuBLAS 12.8 / 29.2  cuSPARSE  5.8 / 12.9
//   1000x2048  f16 .9   V  8.41 / D1 13.6 cuBLAS 5.47 / 6.17  cuSPARSE 15.0 / 39.4        f32 .9   G   13.5 / 39.8  cuBLAS 19.3 / 53.2  cuSPARSE 17.5 / 38.4
//   clustered 8192^2, 3.2 %, rows shuffled, f16: H+bsa 13.8 / 49.5, H unordered 71 / 287, G 61 / 213, cuBLAS 36 / 78, cuSPARSE 50 / 294
//   powerlaw 100k x 20: f16 G 80.9 / 300, cuSPARSE 165 / 594; f32 G 126 / 496, cuSPARSE 177 / 659
// Found: f16 at DLMC sizes is launch, latency and L2-to-SM bytes; dense cuBLAS wins to .98. Nothing in DLMC rewards reordering (nnz per 8x1 vector
// stays that of a random matrix). Tried and dropped: TMA multicast of the strip over clusters of 2 and 4 (never best), cp.async for the strip
// (best only for some RB 64 C16strip cases), tables loaded before thread 0 starts the copies (slower: start the copies first).
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda.h>
#include <cublas_v2.h>
#include <cusparse.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <string>
#include <vector>
#include <thread>
#include <algorithm>
#include <numeric>
#include <functional>
#include <map>
#include <chrono>
#include <memory>
#include <cstdarg>
#define CK(x) do{cudaError_t e_=(x);if(e_!=cudaSuccess){printf("CUDA error %s at %s:%d\n",cudaGetErrorString(e_),__FILE__,__LINE__);exit(1);}}while(0)
typedef uint32_t u32; typedef uint16_t u16; using std::vector;

// ================================================================ device helpers
__device__ __forceinline__ u32 s2u(const void*p){return (u32)__cvta_generic_to_shared(p);}
__device__ __forceinline__ void mb_init(u32 b,int n){asm volatile("mbarrier.init.shared.b64 [%0],%1;"::"r"(b),"r"(n):"memory");}
__device__ __forceinline__ void mb_expect(u32 b,u32 n){asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;"::"r"(b),"r"(n):"memory");}
__device__ __forceinline__ void mb_arrive(u32 b){asm volatile("mbarrier.arrive.shared.b64 _,[%0];"::"r"(b):"memory");}
__device__ __forceinline__ void mb_wait(u32 b,u32 ph){
  asm volatile("{\n.reg .pred p;\nL0:\nmbarrier.try_wait.parity.shared.b64 p,[%0],%1;\n@p bra L1;\nbra L0;\nL1:\n}"::"r"(b),"r"(ph):"memory");}
__device__ __forceinline__ void bulk(u32 dst,const void*src,u32 n,u32 bar){
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];"::"r"(dst),"l"(src),"r"(n),"r"(bar):"memory");}
__device__ __forceinline__ void tma2(u32 dst,const CUtensorMap*tm,int x,int y,u32 bar){
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0],[%1,{%2,%3}],[%4];"::"r"(dst),"l"(tm),"r"(x),"r"(y),"r"(bar):"memory");}
__device__ __forceinline__ void ldsm4t(u32 a,u32*r){asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];":"=r"(r[0]),"=r"(r[1]),"=r"(r[2]),"=r"(r[3]):"r"(a):"memory");}
__device__ __forceinline__ void ldsm4(u32 a,u32*r){asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];":"=r"(r[0]),"=r"(r[1]),"=r"(r[2]),"=r"(r[3]):"r"(a):"memory");}
__device__ __forceinline__ void mma(float*c,const u32*a,u32 b0,u32 b1){
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
   :"+f"(c[0]),"+f"(c[1]),"+f"(c[2]),"+f"(c[3]):"r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"r"(b0),"r"(b1));}
__device__ __forceinline__ u32 lds32(u32 a){u32 r;asm volatile("ld.shared.u32 %0,[%1];":"=r"(r):"r"(a));return r;}
__device__ __forceinline__ u32 lds16(u32 a){u16 r;asm volatile("ld.shared.u16 %0,[%1];":"=h"(r):"r"(a));return r;}
__device__ __forceinline__ uint2 lds64(u32 a){uint2 r;asm volatile("ld.shared.v2.u32 {%0,%1},[%2];":"=r"(r.x),"=r"(r.y):"r"(a));return r;}
__device__ __forceinline__ uint4 lds128(u32 a){uint4 r;asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];":"=r"(r.x),"=r"(r.y),"=r"(r.z),"=r"(r.w):"r"(a));return r;}
__device__ __forceinline__ float4 ldsf4(u32 a){float4 r;asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3},[%4];":"=f"(r.x),"=f"(r.y),"=f"(r.z),"=f"(r.w):"r"(a));return r;}
__device__ __forceinline__ void sts16(u32 a,u32 v){asm volatile("st.shared.u16 [%0],%1;"::"r"(a),"h"((u16)v):"memory");}
__device__ __forceinline__ void sts128z(u32 a){asm volatile("st.shared.v4.u32 [%0],{%1,%1,%1,%1};"::"r"(a),"r"(0):"memory");}
__device__ __forceinline__ float hlo(u32 x){__half2 h=*(__half2*)&x;return __low2float(h);}
__device__ __forceinline__ float hhi(u32 x){__half2 h=*(__half2*)&x;return __high2float(h);}
__device__ __forceinline__ u32 pk(float a,float b){__half2 h=__floats2half2_rn(a,b);return *(u32*)&h;}
__device__ __forceinline__ u32 movm(u32 a){u32 d;asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;":"=r"(d):"r"(a));return d;}
// byte address of 16-byte chunk c of strip row k (the hardware's 128- or 64-byte swizzle); RB = bytes a strip row
template<int RB> __device__ __forceinline__ u32 swz(u32 k,u32 c){ return RB==128? k*128+((c^(k&7))<<4) : k*64+((c^((k>>1)&3))<<4); }
__device__ __forceinline__ void fma8(float*acc,float v,uint4 b){
  acc[0]+=v*hlo(b.x);acc[1]+=v*hhi(b.x);acc[2]+=v*hlo(b.y);acc[3]+=v*hhi(b.y);acc[4]+=v*hlo(b.z);acc[5]+=v*hhi(b.z);acc[6]+=v*hlo(b.w);acc[7]+=v*hhi(b.w);}

static const int CHUNK=128;                    // strip rows a barrier covers
// shared memory of a strip kernel: [0,1024) barriers, [1024, +Kpad*RB) strip, then the CTA's blob of A, then scratch
// thread 0 starts every copy at once; the caller loads its pointers and tables meanwhile, then __syncthreads()
template<int RB> __device__ __forceinline__ void strip_start(u32 smb,const CUtensorMap*tm,int K,const char*blob,u32 b0,u32 b1,int xbase){
  const int nch=(K+CHUNK-1)/CHUNK; const u32 st=smb+1024;
  if(threadIdx.x==0){ for(int i=0;i<=nch;i++) mb_init(smb+8*i,1); asm volatile("fence.mbarrier_init.release.cluster;":::"memory");asm volatile("fence.proxy.async.shared::cta;":::"memory");
    for(int i=0;i<nch;i++){ mb_expect(smb+8*i,CHUNK*RB); tma2(st+i*CHUNK*RB,tm,blockIdx.y*xbase,i*CHUNK,smb+8*i); }
    if(blob){ mb_expect(smb+8*nch,b1-b0); if(b1>b0) bulk(st+nch*CHUNK*RB,blob+b0,b1-b0,smb+8*nch); } }
}
// every chunk has landed: needed before the strip's memory is used again
__device__ __forceinline__ void strip_all(u32 smb,int K){ const int nch=(K+CHUNK-1)/CHUNK; for(int i=0;i<nch;i++) mb_wait(smb+8*i,0); }
// add the KS partial accumulators of a row group through shared memory and store f16; tiles of 16x8 (rows x cols)
template<int G,int NT> __device__ __forceinline__ void mma_store(float (&acc)[G][NT][4],u32 smb,int K,u32 red,int warp,int lane,int KS,int ks,const int*rowid,__half*C,int N,int n0){
  const int g=lane>>2,t=lane&3;
  if(KS==1){
    #pragma unroll
    for(int i=0;i<G;i++)
      #pragma unroll
      for(int h=0;h<2;h++){ int r=rowid[i*16+h*8+g]; if(r>=0)
        #pragma unroll
        for(int j=0;j<NT;j++) if(n0+j*8<N) *(u32*)(C+(size_t)r*N+n0+j*8+2*t)=pk(acc[i][j][2*h],acc[i][j][2*h+1]); }
    return; }
  strip_all(smb,K); __syncthreads();
  #pragma unroll
  for(int i=0;i<G;i++)
    #pragma unroll
    for(int j=0;j<NT;j++) asm volatile("st.shared.v4.f32 [%0],{%1,%2,%3,%4};"::"r"(red+((warp*G*NT+i*NT+j)*32+lane)*16),"f"(acc[i][j][0]),"f"(acc[i][j][1]),"f"(acc[i][j][2]),"f"(acc[i][j][3]):"memory");
  __syncthreads();
  const int w0=warp-ks;
  for(int q=ks;q<G*NT;q+=KS){ float4 s=ldsf4(red+((w0*G*NT+q)*32+lane)*16);
    for(int z=1;z<KS;z++){ float4 u=ldsf4(red+(((w0+z)*G*NT+q)*32+lane)*16); s.x+=u.x;s.y+=u.y;s.z+=u.z;s.w+=u.w; }
    int i=q/NT,j=q%NT; if(n0+j*8<N){ int r=rowid[i*16+g]; if(r>=0) *(u32*)(C+(size_t)r*N+n0+j*8+2*t)=pk(s.x,s.y); r=rowid[i*16+8+g]; if(r>=0) *(u32*)(C+(size_t)r*N+n0+j*8+2*t)=pk(s.z,s.w); } }
}
// ================================================================ D1: 16x16 tiles in mma-fragment order straight from L2 to registers
template<int RB,int G> __global__ void __launch_bounds__(512) strip_tile(const __grid_constant__ CUtensorMap tm,const uint4*__restrict__ frag,const u16*__restrict__ tcol,const int*__restrict__ tptr,const int*__restrict__ rowid,__half*C,int N,int K,int ng,int KS,int gpc){
  extern __shared__ __align__(1024) unsigned char sm[]; const u32 smb=s2u(sm); constexpr int NT=RB/16, PD=G==1?4:2;
  strip_start<RB>(smb,&tm,K,nullptr,0,0,RB/2);
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31,gi=warp/KS,ks=warp%KS; const int g=blockIdx.x*gpc+gi; const bool on=gi<gpc&&g<ng;
  const int p0=on?tptr[g]:0,len=on?tptr[g+1]-p0:0; int t0=p0+len*ks/KS; const int t1=p0+len*(ks+1)/KS;
    uint4 cur[PD][G],nxt[PD][G]; int cc[PD],cn[PD];
    #pragma unroll
    for(int d=0;d<PD;d++) if(t0+d<t1){ cn[d]=tcol[t0+d];
      #pragma unroll
      for(int i=0;i<G;i++) nxt[d][i]=__ldg(frag+((size_t)(t0+d)*G+i)*32+lane); }
  __syncthreads();
  float acc[G][NT][4]={}; 
  if(on){
    int seen=-1; const u32 st=smb+1024; const u32 lk=(lane&7)+((lane>>3)&1)*8, lc=lane>>4;
    for(int t=t0;t<t1;t+=PD){
      #pragma unroll
      for(int d=0;d<PD;d++){ cc[d]=cn[d];
        #pragma unroll
        for(int i=0;i<G;i++) cur[d][i]=nxt[d][i]; }
      #pragma unroll
      for(int d=0;d<PD;d++) if(t+PD+d<t1){ cn[d]=tcol[t+PD+d];
        #pragma unroll
        for(int i=0;i<G;i++) nxt[d][i]=__ldg(frag+((size_t)(t+PD+d)*G+i)*32+lane); }
      #pragma unroll
      for(int d=0;d<PD;d++) if(t+d<t1){
        if((cc[d]>>3)!=seen){ seen=cc[d]>>3; mb_wait(smb+8*seen,0); }
        const u32 base=st+swz<RB>(cc[d]*16+lk,lc);
        #pragma unroll
        for(int j=0;j<NT;j+=2){ u32 b[4]; ldsm4t(base^(j<<4),b);
          #pragma unroll
          for(int i=0;i<G;i++){ const u32 a[4]={cur[d][i].x,cur[d][i].y,cur[d][i].z,cur[d][i].w}; mma(acc[i][j],a,b[0],b[1]); mma(acc[i][j+1],a,b[2],b[3]); } }
      }
    }
  }
  mma_store<G,NT>(acc,smb,K,smb+1024,warp,lane,KS,ks,rowid+(on?g:0)*16*G,C,on?N:0,blockIdx.y*(RB/2));
}
// ================================================================ D2: 4-byte entries {f16 value, position}, scattered by each warp into a zeroed 16G x KC tile, ldmatrix + mma, then un-scattered
template<int RB,int G,int KC> __global__ void __launch_bounds__(512) strip_scatter(const __grid_constant__ CUtensorMap tm,const char*__restrict__ blob,const u32*__restrict__ boff,const u32*__restrict__ eptr,const int*__restrict__ rowid,__half*C,int N,int K,int ng,int KS,int gpc,u32 bufoff){
  extern __shared__ __align__(1024) unsigned char sm[]; const u32 smb=s2u(sm); constexpr int NT=RB/16,LD=KC+8,BUF=16*G*LD*2;
  const int nch=(K+CHUNK-1)/CHUNK, nkc=(K+KC-1)/KC; const u32 b0=boff[blockIdx.x],b1=boff[blockIdx.x+1];
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31,gi=warp/KS,ks=warp%KS; const int g=blockIdx.x*gpc+gi; const bool on=gi<gpc&&g<ng;
  strip_start<RB>(smb,&tm,K,blob,b0,b1,RB/2);
  u32 ptr=0,ptr2=0; if(on){ if(lane<=nkc) ptr=eptr[g*nkc+lane]; if(lane+32<=nkc) ptr2=eptr[g*nkc+lane+32]; }
  __syncthreads();
  const u32 st=smb+1024,en=st+nch*CHUNK*RB;
  const u32 buf=smb+bufoff+warp*BUF;
  float acc[G][NT][4]={};
  if(on){
    for(int i=lane*16;i<BUF;i+=512) sts128z(buf+i);
    __syncwarp(); mb_wait(smb+8*nch,0);
    const u32 lk=(lane&7)+((lane>>3)&1)*8, lc=lane>>4; const u32 la=buf+(((lane&7)+((lane>>3)&1)*8)*LD+(lane>>4)*8)*2; int seen=-1;
    for(int c=ks;c<nkc;c+=KS){
      const u32 x0=__shfl_sync(~0u,c<32?ptr:ptr2,c&31),x1=__shfl_sync(~0u,c+1<32?ptr:ptr2,(c+1)&31); const u32 e0=en+(x0*4-b0),e1=en+(x1*4-b0);
      #pragma unroll 4
      for(u32 e=e0+lane*4;e<e1;e+=128){ u32 x=lds32(e); sts16(buf+(x&0xffff),x>>16); }
      __syncwarp();
      const int kt1=min(KC/16,(K-c*KC+15)/16);
      #pragma unroll 2
      for(int kt=0;kt<kt1;kt++){
        const int kb=c*(KC/16)+kt; if((kb>>3)!=seen){ seen=kb>>3; mb_wait(smb+8*seen,0); }
        u32 a[G][4];
        #pragma unroll
        for(int i=0;i<G;i++) ldsm4(la+i*16*LD*2+kt*32,a[i]);
        const u32 base=st+swz<RB>(kb*16+lk,lc);
        #pragma unroll
        for(int j=0;j<NT;j+=2){ u32 b[4]; ldsm4t(base^(j<<4),b);
          #pragma unroll
          for(int i=0;i<G;i++){ mma(acc[i][j],a[i],b[0],b[1]); mma(acc[i][j+1],a[i],b[2],b[3]); } }
      }
      __syncwarp();
      if(c+KS<nkc){
        #pragma unroll 4
        for(u32 e=e0+lane*4;e<e1;e+=128){ u32 x=lds32(e); sts16(buf+(x&0xffff),0); }
        __syncwarp(); }
    }
  }
  mma_store<G,NT>(acc,smb,K,st,warp,lane,KS,ks,rowid+(on?g:0)*16*G,C,on?N:0,blockIdx.y*(RB/2));
}
// ================================================================ V: 8x1 vectors, sparse operand on the n side (m16 = columns of C), B rows gathered by ldmatrix.trans row addresses
template<int RB> __global__ void __launch_bounds__(512) strip_vec8(const __grid_constant__ CUtensorMap tm,const char*__restrict__ blob,const u32*__restrict__ boff,const u32*__restrict__ vptr,const int*__restrict__ rowid,__half*C,int N,int K,int nw,int KS,int wpc){
  extern __shared__ __align__(1024) unsigned char sm[]; const u32 smb=s2u(sm); constexpr int NT=RB/32;
  const int nch=(K+CHUNK-1)/CHUNK; const u32 b0=boff[blockIdx.x],b1=boff[blockIdx.x+1];
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31,gi=warp/KS,ks=warp%KS; const int g=blockIdx.x*wpc+gi; const bool on=gi<wpc&&g<nw;
  strip_start<RB>(smb,&tm,K,blob,b0,b1,RB/2);
  u32 p0=0,len=0; int r=-1; if(on){ p0=vptr[g]; len=vptr[g+1]-p0; r=rowid[g*8+(lane>>2)]; }
  __syncthreads();
  const u32 st=smb+1024,en=st+nch*CHUNK*RB;
  float acc[NT][4]={}, acd[NT][4]={};
  if(on){
    mb_wait(smb+8*nch,0);
    const u32 q0=p0+len*ks/KS,q1=p0+len*(ks+1)/KS;
    u32 e=en+q0*288-b0; const u32 il=((lane&7)+(lane>>4)*8)*2, lc=(lane>>3)&1;
    for(int i=0;i<nch;i++) mb_wait(smb+8*i,0);
    u32 q=q0;
    for(;q+2<=q1;q+=2,e+=576){
      const u32 k=lds16(e+il),k2=lds16(e+288+il); const uint2 v=lds64(e+32+lane*8),v2=lds64(e+320+lane*8);
      const u32 base=st+swz<RB>(k,lc),base2=st+swz<RB>(k2,lc);
      #pragma unroll
      for(int j=0;j<NT;j++){ u32 a[4]; ldsm4t(base^(j<<5),a); mma(acc[j],a,v.x,v.y); u32 c[4]; ldsm4t(base2^(j<<5),c); mma(acd[j],c,v2.x,v2.y); }
    }
    if(q<q1){ const u32 k=lds16(e+il); const uint2 v=lds64(e+32+lane*8); const u32 base=st+swz<RB>(k,lc);
      #pragma unroll
      for(int j=0;j<NT;j++){ u32 a[4]; ldsm4t(base^(j<<5),a); mma(acc[j],a,v.x,v.y); } }
  }
  #pragma unroll
  for(int j=0;j<NT;j++)
    #pragma unroll
    for(int z=0;z<4;z++) acc[j][z]+=acd[j][z];
  const int n0=blockIdx.y*(RB/2);
  if(KS>1){ strip_all(smb,K); __syncthreads(); const u32 red=st;
    #pragma unroll
    for(int j=0;j<NT;j++) asm volatile("st.shared.v4.f32 [%0],{%1,%2,%3,%4};"::"r"(red+((warp*NT+j)*32+lane)*16),"f"(acc[j][0]),"f"(acc[j][1]),"f"(acc[j][2]),"f"(acc[j][3]):"memory");
    __syncthreads(); }
  if(!on) return;
  #pragma unroll
  for(int j=0;j<NT;j++){
    if(KS>1){ if(j%KS!=ks) continue; float4 s=make_float4(0,0,0,0); for(int z=0;z<KS;z++){ float4 u=ldsf4(st+(((warp-ks+z)*NT+j)*32+lane)*16); s.x+=u.x;s.y+=u.y;s.z+=u.z;s.w+=u.w; } acc[j][0]=s.x;acc[j][1]=s.y;acc[j][2]=s.z;acc[j][3]=s.w; }
    u32 x=movm(pk(acc[j][0],acc[j][1])), y=movm(pk(acc[j][2],acc[j][3]));   // now lane holds row lane/4, columns 2t,2t+1
    if(r>=0&&n0+j*16<N) *(u32*)(C+(size_t)r*N+n0+j*16+2*(lane&3))=x;
    if(r>=0&&n0+j*16+8<N) *(u32*)(C+(size_t)r*N+n0+j*16+8+2*(lane&3))=y;
  }
}
// ================================================================ C16: CUDA cores, strip resident; a team of RB/16 lanes takes 16 bytes each of a strip row; TPR teams a row
template<int RB,int TPR> __global__ void __launch_bounds__(512) strip_fma16(const __grid_constant__ CUtensorMap tm,const char*__restrict__ blob,const u32*__restrict__ boff,const u32*__restrict__ rptr,const int*__restrict__ rowid,__half*C,int N,int K,int M,int G){
  extern __shared__ __align__(1024) unsigned char sm[]; const u32 smb=s2u(sm); constexpr int T=RB/16;
  const int nch=(K+CHUNK-1)/CHUNK; const u32 b0=boff[blockIdx.x],b1=boff[blockIdx.x+1];
  const u32 st=smb+1024,en=st+nch*CHUNK*RB-b0; const int l=threadIdx.x%T,team=threadIdx.x/T,sub=team%TPR,nt=blockDim.x/T/TPR;
  const int r0=(int)((long long)M*min((int)blockIdx.x,G)/G),r1=(int)((long long)M*min((int)blockIdx.x+1,G)/G); int seen=0;
  strip_start<RB>(smb,&tm,K,blob,b0,b1,RB/2);
  u32 ea=0,eb=0; int oid=0; { const int r=r0+team/TPR; if(r<r1){ ea=rptr[r]*4+sub*16; eb=rptr[r+1]*4; oid=rowid[r]; } }
  __syncthreads();

  mb_wait(smb+8*nch,0);
  const int n0=blockIdx.y*(RB/2)+l*8;
  for(int rb=r0;rb<r1;rb+=nt){ const int r=rb+team/TPR; if(TPR>1&&rb+(int)((threadIdx.x&~31)/T/TPR)>=r1) break; 
    const bool ok=r<r1; u32 e=ea,e1=eb; const int orow=oid; if(r+nt<r1){ ea=rptr[r+nt]*4+sub*16; eb=rptr[r+nt+1]*4; oid=rowid[r+nt]; } else { ea=eb=0; }
    float acc[8]={};
    for(;e<e1;e+=16*TPR){ const uint4 q=lds128(en+e); const u32 kl=q.w&0xffff;
      while(seen<=(int)(kl/CHUNK)){ mb_wait(smb+8*seen,0); seen++; }
      const uint4 x=lds128(st+swz<RB>(q.x&0xffff,l)),y=lds128(st+swz<RB>(q.y&0xffff,l)),z=lds128(st+swz<RB>(q.z&0xffff,l)),w=lds128(st+swz<RB>(kl,l));
      fma8(acc,hhi(q.x),x); fma8(acc,hhi(q.y),y); fma8(acc,hhi(q.z),z); fma8(acc,hhi(q.w),w); }
    if(TPR>1){
      #pragma unroll
      for(int d=T;d<T*TPR;d*=2)
        #pragma unroll
        for(int i=0;i<8;i++) acc[i]+=__shfl_xor_sync(~0u,acc[i],d); }
    if(ok&&sub==0&&n0<N){ uint4 o=make_uint4(pk(acc[0],acc[1]),pk(acc[2],acc[3]),pk(acc[4],acc[5]),pk(acc[6],acc[7])); *(uint4*)(C+(size_t)orow*N+n0)=o; }
  }
}
// ================================================================ C32: FFMA, strip resident, R x 1 vectors (R rows share each 16-byte load of B); quads of vectors {4 k, 4 x R values}
// GL: the blob of A is read from global memory a quad ahead instead of being copied to shared memory first
template<int RB,int R,int TPR,bool GL> __global__ void __launch_bounds__(512) strip_fma32(const __grid_constant__ CUtensorMap tm,const char*__restrict__ blob,const u32*__restrict__ boff,const u32*__restrict__ rptr,const int*__restrict__ rowid,float*C,int N,int K,int M,int G){
  extern __shared__ __align__(1024) unsigned char sm[]; const u32 smb=s2u(sm); constexpr int T=RB/16,QB=16+16*R;   // M counts windows of R rows
  const int nch=(K+CHUNK-1)/CHUNK; const u32 b0=GL?0:boff[blockIdx.x],b1=GL?0:boff[blockIdx.x+1];
  strip_start<RB>(smb,&tm,K,GL?nullptr:blob,b0,b1,RB/4); __syncthreads();
  const u32 st=smb+1024,en=st+nch*CHUNK*RB-b0; const int l=threadIdx.x%T,team=threadIdx.x/T,sub=team%TPR,nt=blockDim.x/T/TPR;
  const int r0=(int)((long long)M*min((int)blockIdx.x,G)/G),r1=(int)((long long)M*min((int)blockIdx.x+1,G)/G); int seen=0;
  if(!GL) mb_wait(smb+8*nch,0);
  const int n0=blockIdx.y*(RB/4)+l*4; auto get=[&](uint4*d,u32 e){
    #pragma unroll
    for(int i=0;i<=R;i++) d[i]=GL?__ldg((const uint4*)(blob+e)+i):lds128(en+e+16*i); };
  for(int rb=r0;rb<r1;rb+=nt){ const int r=rb+team/TPR; if(TPR>1&&rb+(int)((threadIdx.x&~31)/T/TPR)>=r1) break;
    const bool ok=r<r1; u32 e=0,e1=0; if(ok){ e=(rptr[r]+sub)*QB; e1=rptr[r+1]*QB; }
    float acc[R][4]={}; uint4 d[R+1],f[R+1]; if(GL&&e<e1) get(f,e);
    for(;e<e1;e+=QB*TPR){
      if(GL){
        #pragma unroll
        for(int i=0;i<=R;i++) d[i]=f[i];
        if(e+QB*TPR<e1) get(f,e+QB*TPR); } else get(d,e);
      const uint4 q=d[0];
      while(seen<=(int)(q.w/CHUNK)){ mb_wait(smb+8*seen,0); seen++; }
      const float4 b[4]={ldsf4(st+swz<RB>(q.x,l)),ldsf4(st+swz<RB>(q.y,l)),ldsf4(st+swz<RB>(q.z,l)),ldsf4(st+swz<RB>(q.w,l))};
      float v[4*R];
      #pragma unroll
      for(int i=0;i<R;i++){ v[4*i]=__uint_as_float(d[i+1].x);v[4*i+1]=__uint_as_float(d[i+1].y);v[4*i+2]=__uint_as_float(d[i+1].z);v[4*i+3]=__uint_as_float(d[i+1].w); }
      #pragma unroll
      for(int j=0;j<4;j++)
        #pragma unroll
        for(int i=0;i<R;i++){ acc[i][0]+=v[j*R+i]*b[j].x;acc[i][1]+=v[j*R+i]*b[j].y;acc[i][2]+=v[j*R+i]*b[j].z;acc[i][3]+=v[j*R+i]*b[j].w; } }
    if(TPR>1){
      #pragma unroll
      for(int d2=T;d2<T*TPR;d2*=2)
        #pragma unroll
        for(int i=0;i<R;i++)
          #pragma unroll
          for(int z=0;z<4;z++) acc[i][z]+=__shfl_xor_sync(~0u,acc[i][z],d2); }
    if(ok&&sub==0&&n0<N)
      #pragma unroll
      for(int i=0;i<R;i++){ int o=rowid[r*R+i]; if(o>=0) *(float4*)(C+(size_t)o*N+n0)=make_float4(acc[i][0],acc[i][1],acc[i][2],acc[i][3]); }
  }
}
// ================================================================ Gt: CUDA cores, B gathered from L2; team of T lanes x 16 bytes; long rows cut in pieces, the last piece to finish adds them up
struct Item { int row,e0,e1,split; };           // split: -1 whole row, else index of its Split
struct Split { int row,first,parts,pad; };      // workspace slots first..first+parts
template<typename E,int T,int U> __global__ void __launch_bounds__(256) gather(const int2*__restrict__ ent,const Item*__restrict__ items,int ni,const Split*__restrict__ sp,const int*__restrict__ slot,float*ws,unsigned*cnt,const E*__restrict__ B,E*C,int N){
  constexpr int V=16/sizeof(E); const int lane=threadIdx.x&31,l=lane%T; const int it=(blockIdx.x*blockDim.x+threadIdx.x)/T; const int n0=blockIdx.y*T*V+l*V;
  const unsigned tm=T==32?~0u:((1u<<(T&31))-1)<<(lane/T*T);
  if(it>=ni) return; const Item I=items[it]; float acc[V]={}; const char*Bp=(const char*)(B+n0); const size_t ldb=(size_t)N*sizeof(E);
  for(int e=I.e0;e<I.e1;e+=T){ const int n=min(T,I.e1-e); int2 x=make_int2(0,0); if(l<n) x=__ldg(ent+e+l);
    int j=0;
    auto one=[&](auto UU){ constexpr int W=decltype(UU)::value; uint4 b[W]; float v[W];
      #pragma unroll
      for(int u=0;u<W;u++){ int k=__shfl_sync(tm,x.x,j+u,T); v[u]=__int_as_float(__shfl_sync(tm,x.y,j+u,T)); b[u]=__ldg((const uint4*)(Bp+k*ldb)); }
      #pragma unroll
      for(int u=0;u<W;u++){ if(sizeof(E)==2) fma8(acc,v[u],b[u]); else { acc[0]+=v[u]*__uint_as_float(b[u].x);acc[1]+=v[u]*__uint_as_float(b[u].y);acc[2]+=v[u]*__uint_as_float(b[u].z);acc[3]+=v[u]*__uint_as_float(b[u].w); } }
      j+=W; };
    while(j+U<=n) one(std::integral_constant<int,U>());
    if(U>4) while(j+4<=n) one(std::integral_constant<int,4>());
    if(j+2<=n) one(std::integral_constant<int,2>());
    while(j<n) one(std::integral_constant<int,1>());
  }
  auto put=[&](int row){ uint4 o; if(sizeof(E)==2) o=make_uint4(pk(acc[0],acc[1]),pk(acc[2],acc[3]),pk(acc[4],acc[5]),pk(acc[6],acc[7])); else o=make_uint4(__float_as_uint(acc[0]),__float_as_uint(acc[1]),__float_as_uint(acc[2]),__float_as_uint(acc[3]));
    __stcs((uint4*)(C+(size_t)row*N+n0),o); };
  if(I.split<0){ put(I.row); return; }
  const Split S=sp[I.split]; float*w=ws+(size_t)slot[it]*N+n0;
  #pragma unroll
  for(int i=0;i<V;i+=4) __stcg((float4*)(w+i),make_float4(acc[i],acc[i+1],acc[i+2],acc[i+3]));
  __threadfence(); __syncwarp(tm); unsigned old=0; unsigned*cp=cnt+I.split*gridDim.y+blockIdx.y; if(l==0) old=atomicAdd(cp,1u); old=__shfl_sync(tm,old,0,T);
  if(old+1==(unsigned)S.parts){ __threadfence();
    #pragma unroll
    for(int i=0;i<V;i++) acc[i]=0;
    for(int p=0;p<S.parts;p++){ const float*w2=ws+(size_t)(S.first+p)*N+n0;
      #pragma unroll
      for(int i=0;i<V;i+=4){ float4 x=__ldcg((const float4*)(w2+i)); acc[i]+=x.x;acc[i+1]+=x.y;acc[i+2]+=x.z;acc[i+3]+=x.w; } }
    put(S.row); if(l==0) *cp=0; }
}
// ================================================================ H: BSA in one launch. CTA = 32 (reordered) rows x 64*CW columns: dense 32x32 tiles by mma over a TMA ring, then the remainder by CUDA cores
template<int CW,int NST> __global__ void __launch_bounds__(128*CW) hybrid(const __grid_constant__ CUtensorMap tm,const uint4*__restrict__ frag,const int*__restrict__ tcol,const int*__restrict__ tptr,const int2*__restrict__ ent,const int*__restrict__ rptr,const int*__restrict__ rowid,const int*__restrict__ order,const __half*__restrict__ B,__half*C,int N){
  extern __shared__ __align__(1024) unsigned char sm[]; const u32 smb=s2u(sm),st=smb+1024; constexpr int W=64*CW,SA=CW*4096,SB=SA+2048,LDC=W+4,NW=4*CW;
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31,blk=order[blockIdx.x],x0=blockIdx.y*W;
  const int p0=tptr[blk],nt=tptr[blk+1]-p0;
  if(threadIdx.x==0){ for(int s=0;s<NST;s++){ mb_init(smb+16*s,1); mb_init(smb+16*s+8,NW); } asm volatile("fence.mbarrier_init.release.cluster;":::"memory");asm volatile("fence.proxy.async.shared::cta;":::"memory");
    for(int i=0;i<NST&&i<nt;i++){ mb_expect(smb+16*i,SB); int k=tcol[p0+i]*32; for(int c=0;c<CW;c++) tma2(st+i*SB+c*4096,&tm,x0+c*64,k,smb+16*i); bulk(st+i*SB+SA,frag+(size_t)(p0+i)*128,2048,smb+16*i); } }
  __syncthreads();
  float acc[2][2][4]={}; const int c=warp/4,j0=(warp%4)*2; // warp: 32 rows x 16 columns
  const u32 lk=(lane&7)+((lane>>3)&1)*8,lc=j0+(lane>>4); u32 s=0,ph=0;
  for(int t=0;t<nt;t++){ uint4 a4[4];
    mb_wait(smb+16*s,ph);
    #pragma unroll
    for(int i=0;i<4;i++) a4[i]=lds128(st+s*SB+SA+i*512+lane*16);
    #pragma unroll
    for(int kk=0;kk<2;kk++){ u32 b[4]; ldsm4t(st+s*SB+c*4096+swz<128>(kk*16+lk,lc),b);
      #pragma unroll
      for(int i=0;i<2;i++){ const u32 a[4]={a4[kk*2+i].x,a4[kk*2+i].y,a4[kk*2+i].z,a4[kk*2+i].w}; mma(acc[i][0],a,b[0],b[1]); mma(acc[i][1],a,b[2],b[3]); } }
    __syncwarp(); if(lane==0) mb_arrive(smb+16*s+8);
    if(threadIdx.x==0&&t>=1&&t-1+NST<nt){ const u32 sj=s?s-1:NST-1,pj=s?ph:ph^1; mb_wait(smb+16*sj+8,pj); mb_expect(smb+16*sj,SB); int k=tcol[p0+t-1+NST]*32; for(int q=0;q<CW;q++) tma2(st+sj*SB+q*4096,&tm,x0+q*64,k,smb+16*sj); bulk(st+sj*SB+SA,frag+(size_t)(p0+t-1+NST)*128,2048,smb+16*sj); } // refill the stage of the step before
    if(++s==NST){s=0;ph^=1;}
  }
  const u32 cs=smb+1024+NST*SB;                                          // f32 C tile
  #pragma unroll
  for(int i=0;i<2;i++)
    #pragma unroll
    for(int j=0;j<2;j++)
      #pragma unroll
      for(int h=0;h<2;h++) asm volatile("st.shared.v2.f32 [%0],{%1,%2};"::"r"(cs+((i*16+h*8+(lane>>2))*LDC+c*64+(j0+j)*8+2*(lane&3))*4),"f"(acc[i][j][2*h]),"f"(acc[i][j][2*h+1]):"memory");
  __syncthreads();
  constexpr int T=8*CW; const int team=threadIdx.x/T,l=threadIdx.x%T; constexpr int NTM=128*CW/T; const size_t ldb=(size_t)N*2; const char*Bp=(const char*)(B+x0+l*8);
  for(int r=team;r<32;r+=NTM){ const int o=rowid[blk*32+r]; const u32 ca=cs+(r*LDC+l*8)*4; float4 x=ldsf4(ca),y=ldsf4(ca+16); float f[8]={x.x,x.y,x.z,x.w,y.x,y.y,y.z,y.w};
    int e=rptr[blk*32+r]; const int e1=rptr[blk*32+r+1];
    for(;e+4<=e1;e+=4){ int2 q[4]; uint4 b[4];
      #pragma unroll
      for(int u=0;u<4;u++) q[u]=__ldg(ent+e+u);
      #pragma unroll
      for(int u=0;u<4;u++) b[u]=__ldg((const uint4*)(Bp+q[u].x*ldb));
      #pragma unroll
      for(int u=0;u<4;u++) fma8(f,__int_as_float(q[u].y),b[u]); }
    for(;e<e1;e++){ int2 q=__ldg(ent+e); fma8(f,__int_as_float(q.y),__ldg((const uint4*)(Bp+q.x*ldb))); }
    if(o>=0) *(uint4*)(C+(size_t)o*N+x0+l*8)=make_uint4(pk(f[0],f[1]),pk(f[2],f[3]),pk(f[4],f[5]),pk(f[6],f[7]));
  }
}
// ================================================================ host: matrices
static inline u32 hash32(u32 a){a^=a>>16;a*=0x7feb352dU;a^=a>>15;a*=0x846ca68bU;a^=a>>16;return a;}
struct Csr { std::string name; int M=0,K=0; vector<int> ptr,col; vector<float> vf,vh; bool big=false; size_t nnz()const{return col.size();}
  void values(){ vf.resize(nnz()); vh.resize(nnz()); for(size_t i=0;i<nnz();i++){ float v=(int)(hash32((u32)i*2654435761u+17)>>8)*(2.f/16777216)-1.f; if(fabsf(v)<.01f) v=.5f; vf[i]=v; vh[i]=__half2float(__float2half(v)); } } };
template<class F> static void par(size_t n,F f){ int nt=std::max(1u,std::thread::hardware_concurrency()); vector<std::thread> th; for(int t=0;t<nt;t++) th.emplace_back([=]{ f(n*t/nt,n*(t+1)/nt); }); for(auto&t:th) t.join(); }
static Csr from_rows(const std::string&name,int M,int K,vector<vector<int>>&rows){ Csr c; c.name=name;c.M=M;c.K=K;c.ptr.resize(M+1); par(M,[&](size_t a,size_t b){ for(size_t r=a;r<b;r++){ auto&v=rows[r]; std::sort(v.begin(),v.end()); v.erase(std::unique(v.begin(),v.end()),v.end()); } });
  for(int r=0;r<M;r++) c.ptr[r+1]=c.ptr[r]+rows[r].size(); c.col.resize(c.ptr[M]); par(M,[&](size_t a,size_t b){ for(size_t r=a;r<b;r++) std::copy(rows[r].begin(),rows[r].end(),c.col.begin()+c.ptr[r]); }); c.values(); return c; }
static Csr load(const std::string&path){ FILE*f=fopen(path.c_str(),"r"); if(!f){ printf("cannot open %s\n",path.c_str()); exit(1); } std::string nm=path.substr(path.rfind('/')+1); Csr c; c.name=nm.substr(0,nm.rfind('.')); size_t nn;
  if(nm.size()>5&&nm.substr(nm.size()-5)==".smtx"){ if(fscanf(f,"%d, %d, %zu",&c.M,&c.K,&nn)!=3) exit(1); c.ptr.resize(c.M+1); c.col.resize(nn); for(auto&x:c.ptr) if(fscanf(f,"%d",&x)!=1) exit(1); for(auto&x:c.col) if(fscanf(f,"%d",&x)!=1) exit(1);
    for(int r=0;r<c.M;r++) std::sort(c.col.begin()+c.ptr[r],c.col.begin()+c.ptr[r+1]); c.values(); }
  else { char line[512]; bool sym=false; while(fgets(line,512,f)&&line[0]=='%') if(strstr(line,"symmetric")) sym=true; sscanf(line,"%d %d %zu",&c.M,&c.K,&nn); vector<vector<int>> rows(c.M); for(size_t i=0;i<nn;i++){ if(!fgets(line,512,f)) break; int a,b; if(sscanf(line,"%d %d",&a,&b)!=2) continue; rows[a-1].push_back(b-1); if(sym&&a!=b) rows[b-1].push_back(a-1); } c=from_rows(c.name,c.M,c.K,rows); }
  fclose(f); return c; }
struct Rng { uint64_t s; Rng(uint64_t x):s(x*0x9E3779B97F4A7C15ull+1){} u32 u(){ s^=s<<13;s^=s>>7;s^=s<<17; return (u32)(s>>32); } double d(){ return u()*(1.0/4294967296.0); } };
// power law in both directions: in-degree weight ~ rank^-0.5..., out-degree Pareto(1.1..) with the mean given, hubs scattered
static Csr powerlaw(int n,int deg){ vector<vector<int>> rows(n); par(n,[&](size_t a,size_t b){ for(size_t r=a;r<b;r++){ Rng g(r+12345); double u=g.d()+1e-9; int d=(int)std::min<double>(n/8,deg*.38*pow(u,-1/1.6)); d=std::max(d,1); for(int i=0;i<d;i++){ double x=g.d(); u32 rank=(u32)(n*x*x*x)%n; rows[r].push_back(((uint64_t)rank*2654435761ull+7)%n); } } });
  return from_rows("powerlaw_"+std::to_string(n/1000)+"k_"+std::to_string(deg),n,n,rows); }
static Csr banded(int n,int deg,int half){ vector<vector<int>> rows(n); for(int r=0;r<n;r++){ Rng g(r+77); for(int i=0;i<deg;i++){ int k=r-half+(int)(g.u()%(2*half+1)); if(k>=0&&k<n) rows[r].push_back(k); } } return from_rows("banded_"+std::to_string(n/1000)+"k_"+std::to_string(deg),n,n,rows); }
// clusters of rows that share nb aligned 32-wide column blocks at the given density, plus uniform noise; rows shuffled
static Csr clustered(int n,int nc,int nb,double dens,double noise){ vector<vector<int>> rows(n); vector<int> p(n); std::iota(p.begin(),p.end(),0); Rng g(5); for(int i=n-1;i>0;i--) std::swap(p[i],p[g.u()%(i+1)]);
  vector<vector<int>> blk(nc); for(auto&b:blk) for(int i=0;i<nb;i++) b.push_back(g.u()%(n/32));
  for(int i=0;i<n;i++){ auto&v=rows[p[i]]; for(int b:blk[i%nc]) for(int j=0;j<32;j++) if(g.d()<dens) v.push_back(b*32+j); int q=(int)(noise*n); for(int j=0;j<q;j++) v.push_back(g.u()%n); }
  char nm[64]; sprintf(nm,"clustered_%d_c%d_b%d_d%.2g",n,nc,nb,dens); return from_rows(nm,n,n,rows); }
// ---------------------------------------------------------------- BSA reordering (the paper's; tau columns a block)
static vector<int> bsa_order(const Csr&A,int tau,float alpha,int*ncl=nullptr){
  const int nb=(A.K+tau-1)/tau,M=A.M; vector<float> E((size_t)M*nb,0),nrm(M),inv(M); vector<long long> disp(M);
  par(M,[&](size_t a,size_t b){ for(size_t r=a;r<b;r++){ float*e=&E[r*nb]; for(int i=A.ptr[r];i<A.ptr[r+1];i++) e[A.col[i]/tau]++; double s=0; long long nz=0; for(int i=0;i<nb;i++){ s+=e[i]*e[i]; nz+=e[i]>0; } inv[r]=s>0?1/sqrt(s):0; disp[r]=2ll*tau*nz-(A.ptr[r+1]-A.ptr[r]); } });
  vector<int> asc(M); std::iota(asc.begin(),asc.end(),0); std::stable_sort(asc.begin(),asc.end(),[&](int a,int b){return disp[a]<disp[b];});
  vector<int> out,left; for(int r:asc) if(disp[r]==0) out.push_back(r); else left.push_back(r); int nc=0; vector<float> rep(nb);
  while(!left.empty()){ vector<int> rest; int r0=left[0]; nc++; std::copy(&E[(size_t)r0*nb],&E[(size_t)r0*nb]+nb,rep.begin()); out.push_back(r0); double rs=0; for(float x:rep) rs+=x*x; float ri=1/sqrt(rs);
    for(size_t q=1;q<left.size();q++){ int r=left[q]; const float*e=&E[(size_t)r*nb]; float iv=inv[r],mn=0,mx=0; for(int i=0;i<nb;i++){ float x=rep[i]*ri,y=e[i]*iv; mn+=std::min(x,y); mx+=std::max(x,y); }
      if(mn>alpha*mx){ out.push_back(r); rs=0; for(int i=0;i<nb;i++){ rep[i]+=e[i]; rs+=rep[i]*rep[i]; } ri=1/sqrt(rs); } else rest.push_back(r); }
    left.swap(rest); }
  if(ncl) *ncl=nc; return out; }
static vector<int> ident(int M){ vector<int> p(M); std::iota(p.begin(),p.end(),0); return p; }
static vector<int> by_length(const Csr&A){ auto p=ident(A.M); std::stable_sort(p.begin(),p.end(),[&](int a,int b){return A.ptr[a+1]-A.ptr[a]>A.ptr[b+1]-A.ptr[b];}); return p; }
// nonzeros a vector of h rows; share of the nonzeros in tau x tau tiles denser than delta
static void stats(const Csr&A,const vector<int>&P,const char*what){
  auto vec=[&](int h){ size_t n=0; vector<int> mark(A.K,-1); for(int w=0;w*h<A.M;w++) for(int i=0;i<h&&w*h+i<A.M;i++){ int r=P[w*h+i]; for(int e=A.ptr[r];e<A.ptr[r+1];e++) if(mark[A.col[e]]!=w){ mark[A.col[e]]=w; n++; } } return A.nnz()/(double)n; };
  double cov[3]={0,0,0}; double del[3]={.1,.25,.5}; size_t til[3]={0,0,0}; int nb=(A.K+31)/32; vector<int> c(nb); for(int w=0;w*32<A.M;w++){ std::fill(c.begin(),c.end(),0); for(int i=0;i<32&&w*32+i<A.M;i++){ int r=P[w*32+i]; for(int e=A.ptr[r];e<A.ptr[r+1];e++) c[A.col[e]/32]++; } for(int x:c) for(int d=0;d<3;d++) if(x>del[d]*1024){ cov[d]+=x; til[d]++; } }
  double dens=(double)A.nnz()/A.M/A.K; printf("STAT,%s,%s,density %.4f,nnz/vec8 %.2f (random %.2f),nnz/vec16 %.2f,nnz in 32x32 tiles >.1 %.1f%% (%zu) >.25 %.1f%% (%zu) >.5 %.1f%% (%zu)\n",A.name.c_str(),what,dens,vec(8),8*dens/(1-pow(1-dens,8)),vec(16),100*cov[0]/A.nnz(),til[0],100*cov[1]/A.nnz(),til[1],100*cov[2]/A.nnz(),til[2]); fflush(stdout); }

// ================================================================ host: bench
static int NSM=132; static void*flushbuf; static const size_t FLUSH=256u<<20; static cudaStream_t S; static cublasHandle_t hb; static cusparseHandle_t hs; static int nfail=0;
struct Arena { vector<void*> p; template<class T> T*up(const vector<T>&v){ void*d; CK(cudaMalloc(&d,v.size()*sizeof(T)+256)); if(v.size()) CK(cudaMemcpy(d,v.data(),v.size()*sizeof(T),cudaMemcpyHostToDevice)); p.push_back(d); return (T*)d; } void*raw(size_t n){ void*d; CK(cudaMalloc(&d,n+256)); p.push_back(d); return d; } ~Arena(){ for(void*x:p) cudaFree(x); } };
template<class F> static float hot(F L){ cudaEvent_t a,b; CK(cudaEventCreate(&a));CK(cudaEventCreate(&b)); L(); CK(cudaEventRecord(a,S)); L(); CK(cudaEventRecord(b,S)); CK(cudaStreamSynchronize(S)); float ms; CK(cudaEventElapsedTime(&ms,a,b)); int n=std::max(2,std::min(20,(int)(3000/(ms*1000+1))));
  cudaGraph_t g; cudaGraphExec_t x; CK(cudaStreamBeginCapture(S,cudaStreamCaptureModeThreadLocal)); for(int i=0;i<n;i++) L(); CK(cudaStreamEndCapture(S,&g)); CK(cudaGraphInstantiate(&x,g,0)); CK(cudaGraphLaunch(x,S)); vector<float> v; for(int r=0;r<7;r++){ CK(cudaEventRecord(a,S)); CK(cudaGraphLaunch(x,S)); CK(cudaEventRecord(b,S)); CK(cudaStreamSynchronize(S)); CK(cudaEventElapsedTime(&ms,a,b)); v.push_back(ms*1000/n); }
  std::sort(v.begin(),v.end()); cudaGraphExecDestroy(x); cudaGraphDestroy(g); cudaEventDestroy(a);cudaEventDestroy(b); return v[3]; }
template<class F> static float cold(F L){ cudaEvent_t a,b; CK(cudaEventCreate(&a));CK(cudaEventCreate(&b)); vector<float> v; for(int r=0;r<9;r++){ CK(cudaMemsetAsync(flushbuf,r,FLUSH,S)); CK(cudaEventRecord(a,S)); L(); CK(cudaEventRecord(b,S)); CK(cudaStreamSynchronize(S)); float ms; CK(cudaEventElapsedTime(&ms,a,b)); v.push_back(ms*1000); } std::sort(v.begin(),v.end()); cudaEventDestroy(a);cudaEventDestroy(b); return v[4]; }
typedef CUresult(*EncF)(CUtensorMap*,CUtensorMapDataType,cuuint32_t,void*,const cuuint64_t*,const cuuint64_t*,const cuuint32_t*,const cuuint32_t*,CUtensorMapInterleave,CUtensorMapSwizzle,CUtensorMapL2promotion,CUtensorMapFloatOOBfill);
static CUtensorMap tmap(const void*B,int N,int K,int esz,int rb,int rows){ static EncF f=nullptr; if(!f){ cudaDriverEntryPointQueryResult q; CK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled",(void**)&f,12000,cudaEnableDefault,&q)); }
  CUtensorMap t; cuuint64_t dim[2]={(cuuint64_t)N,(cuuint64_t)K},str[1]={(cuuint64_t)N*esz}; cuuint32_t box[2]={(cuuint32_t)(rb/esz),(cuuint32_t)rows},es[2]={1,1};
  CUresult r=f(&t,esz==2?CU_TENSOR_MAP_DATA_TYPE_FLOAT16:CU_TENSOR_MAP_DATA_TYPE_FLOAT32,2,(void*)B,dim,str,box,es,CU_TENSOR_MAP_INTERLEAVE_NONE,rb==128?CU_TENSOR_MAP_SWIZZLE_128B:CU_TENSOR_MAP_SWIZZLE_64B,CU_TENSOR_MAP_L2_PROMOTION_L2_256B,CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE); if(r){ printf("tensor map error %d\n",r); exit(1); } return t; }
struct Prob { const Csr*A; int N,esz; void*B,*C; vector<int> rows; vector<float> ref; // ref: rows x NR
  int NR; std::string tag; };
static double check(const Prob&p){ const size_t N=p.N; double n=0,q=0; bool all=(size_t)p.A->M*N*p.esz<=(64u<<20); vector<char> h(all?(size_t)p.A->M*N*p.esz:p.rows.size()*N*p.esz);
  if(all) CK(cudaMemcpy(h.data(),p.C,h.size(),cudaMemcpyDeviceToHost)); else for(size_t i=0;i<p.rows.size();i++) CK(cudaMemcpyAsync(&h[i*N*p.esz],(char*)p.C+(size_t)p.rows[i]*N*p.esz,N*p.esz,cudaMemcpyDeviceToHost,S)); CK(cudaStreamSynchronize(S));
  auto get=[&](size_t i){ return p.esz==2?(double)__half2float(((const __half*)h.data())[i]):(double)((const float*)h.data())[i]; };
  vector<double> nn(64,0),qq(64,0); vector<char> bad(64,0); const size_t R=p.rows.size();
  par(64,[&](size_t t0,size_t t1){ for(size_t t=t0;t<t1;t++){ if(all) for(size_t i=(size_t)p.A->M*N*t/64;i<(size_t)p.A->M*N*(t+1)/64;i++) if(!(fabs(get(i))<1e9)) bad[t]=1; double n=0,q=0;
    for(size_t i=R*t/64;i<R*(t+1)/64;i++) for(size_t j=0;j<N;j++){ double x=get((all?(size_t)p.rows[i]:i)*N+j),y=p.ref[i*p.NR+j]; if(!(fabs(x)<1e9)) bad[t]=1; n+=(x-y)*(x-y);q+=y*y; } nn[t]=n;qq[t]=q; } });
  for(int t=0;t<64;t++){ if(bad[t]) return 1e9; n+=nn[t];q+=qq[t]; } return sqrt(n/(q+1e-30)); }
struct Best { float hot=1e30f; double err=0; std::string cfg; std::function<void()> L; std::shared_ptr<Arena> ar; };
static void attempt(Best&b,Prob&p,const std::string&cfg,std::shared_ptr<Arena> ar,std::function<void()> L){
  CK(cudaMemset(p.C,0xff,(size_t)p.A->M*p.N*p.esz)); L(); cudaError_t e=cudaGetLastError(); if(e==cudaSuccess) e=cudaStreamSynchronize(S); if(e!=cudaSuccess){ printf("FAIL %s %s: %s\n",p.tag.c_str(),cfg.c_str(),cudaGetErrorString(e)); nfail++; if(e!=cudaErrorInvalidValue&&e!=cudaErrorInvalidConfiguration) exit(1); return; }
  double er=check(p); if(!(er<(p.esz==2?2e-3:2e-5))){ printf("WRONG %s %s err %.2e%s\n",p.tag.c_str(),cfg.c_str(),er,cfg.substr(0,3)=="alg"?" (cuSPARSE)":""); if(cfg.substr(0,3)!="alg") nfail++; if(cfg.substr(0,3)!="alg"||!(er<1e-2)) return; }
  float t=hot(L); if(t<b.hot){ b.hot=t;b.err=er;b.cfg=cfg;b.L=L;b.ar=ar; } }
static void report(Best&b,Prob&p,const char*sys){ if(b.hot>1e29f) return; float c=cold(b.L); const Csr&A=*p.A; double byt=A.nnz()*(double)(p.esz+(A.K<=65536?2:4))+4.0*(A.M+1)+(double)(A.K+A.M)*p.N*p.esz;
  printf("RES,%s,%d,%d,%zu,%.4f,%d,%s,%s,%s,%.2f,%.2f,%.2e,%.2f\n",A.name.c_str(),A.M,A.K,A.nnz(),1-(double)A.nnz()/A.M/A.K,p.N,p.esz==2?"f16":"f32",sys,b.cfg.c_str(),b.hot,c,b.err,byt/4.3e6); fflush(stdout); }
template<class K> static bool smem_ok(K k,size_t n){ if(n>227*1024) return false; CK(cudaFuncSetAttribute(k,cudaFuncAttributeMaxDynamicSharedMemorySize,227*1024)); return true; }
template<class... P,class... Q> static void launch(void(*k)(P...),dim3 g,int th,size_t sm,Q... a){ k<<<g,th,sm,S>>>(P(a)...); }
static std::string fmt(const char*f,...){ char b[256]; va_list a; va_start(a,f); vsnprintf(b,256,f,a); va_end(a); return b; }
static size_t stripb(int K,int RB){ return (size_t)((K+127)/128)*128*RB; }
static vector<int> pad(vector<int> p,int m){ while(p.size()%m) p.push_back(-1); return p; }

// ---------------------------------------------------------------- D1
template<int RB,int G> static void run_tile(Best&b,Prob&p,const vector<int>&P0,const char*ord){
  const Csr&A=*p.A; if(stripb(A.K,RB)+1024>227*1024||(p.N*2)%RB) return; auto P=pad(P0,16*G); const int ng=P.size()/(16*G),nkb=(A.K+15)/16; auto ar=std::make_shared<Arena>();
  vector<int> tptr(ng+1); vector<u16> tcol; vector<__half> fr; vector<int> map(nkb);
  for(int g=0;g<ng;g++){ std::fill(map.begin(),map.end(),-1); for(int i=0;i<16*G;i++){ int r=P[g*16*G+i]; if(r>=0) for(int e=A.ptr[r];e<A.ptr[r+1];e++) map[A.col[e]/16]=0; } int n=0; for(int k=0;k<nkb;k++) if(map[k]==0){ map[k]=n++; tcol.push_back(k); } size_t base=fr.size(); fr.resize(base+(size_t)n*G*256,__half(0.f));
    for(int i=0;i<16*G;i++){ int r=P[g*16*G+i]; if(r>=0) for(int e=A.ptr[r];e<A.ptr[r+1];e++){ int k=A.col[e]&15,ri=i&15; int lane=(ri&7)*4+((k&7)>>1), reg=(ri>>3)+2*(k>>3); fr[base+((size_t)map[A.col[e]/16]*G+i/16)*256+lane*8+reg*2+(k&1)]=__half(A.vh[e]); } } tptr[g+1]=tptr[g]+n; }
  auto dfr=(const uint4*)ar->up(fr); auto dc=ar->up(tcol); auto dp=ar->up(tptr); auto dr=ar->up(P); auto tm=tmap(p.B,p.N,A.K,2,RB,128); auto k=strip_tile<RB,G>;
  const int Sx=p.N*2/RB; for(int o=1;o<=2;o++){ int gx=std::max(1,NSM*o/Sx),gpc=(ng+gx-1)/gx; gx=(ng+gpc-1)/gpc; for(int KS=1;KS<=8;KS*=2){ int nw=gpc*KS; if(nw>16||(nw<4&&KS<8)) continue; size_t sm=std::max(stripb(A.K,RB),(size_t)(KS>1?nw*G*RB/16*512:0))+1024; if(sm*o>227*1024-1024*(o-1)||!smem_ok(k,sm)) continue;
    int N=p.N,K=A.K; __half*C=(__half*)p.C; { attempt(b,p,fmt("RB%d G%d KS%d gpc%d grid%dx%d %s",RB,G,KS,gpc,gx,Sx,ord),ar,[=]{ launch(k,dim3(gx,Sx),nw*32,sm,tm,dfr,dc,dp,dr,C,N,K,ng,KS,gpc); }); } } } }
// ---------------------------------------------------------------- D2
template<int RB,int G,int KC> static void run_scatter(Best&b,Prob&p,const vector<int>&P0,const char*ord){
  const Csr&A=*p.A; if(stripb(A.K,RB)+1024>227*1024||(p.N*2)%RB) return; auto P=pad(P0,16*G); const int ng=P.size()/(16*G),nkc=(A.K+KC-1)/KC,LD=KC+8; auto ar=std::make_shared<Arena>();
  if(nkc>63) return; vector<u32> ep(ng*nkc+1),en; for(int g=0;g<ng;g++){ vector<vector<u32>> bk(nkc); for(int i=0;i<16*G;i++){ int r=P[g*16*G+i]; if(r>=0) for(int e=A.ptr[r];e<A.ptr[r+1];e++){ int c=A.col[e]/KC; u16 v; __half h(A.vh[e]); memcpy(&v,&h,2); bk[c].push_back(((u32)v<<16)|(u32)((i*LD+A.col[e]%KC)*2)); } }
    for(int c=0;c<nkc;c++){ // order the entries so that 32 in a row fall in different banks as far as they can
      vector<vector<u32>> bin(32); for(u32 x:bk[c]) bin[(x&0xffff)/4%32].push_back(x); size_t left=bk[c].size(); while(left) for(auto&q:bin) if(q.size()){ en.push_back(q.back()); q.pop_back(); left--; }
      while(en.size()%4) en.push_back((u32)(KC*2)); ep[g*nkc+c+1]=en.size(); } }
  auto den=(const char*)ar->up(en); auto dep=ar->up(ep); auto dr=ar->up(P); auto tm=tmap(p.B,p.N,A.K,2,RB,128); auto k=strip_scatter<RB,G,KC>; const int Sx=p.N*2/RB;
  for(int o=1;o<=2;o++){ int gx=std::max(1,NSM*o/Sx),gpc=(ng+gx-1)/gx; gx=(ng+gpc-1)/gpc; vector<u32> bo(gx+9); u32 mx=0; for(int i=0;i<(int)bo.size();i++) bo[i]=ep[std::min(ng,i*gpc)*nkc]*4; for(int i=0;i<gx;i++) mx=std::max(mx,bo[i+1]-bo[i]); bo.resize(gx+1); auto dbo=ar->up(bo);
    for(int KS=1;KS<=8;KS*=2){ int nw=gpc*KS; if(nw>16||(nw<4&&KS<8)||KS>nkc) continue; size_t buf=(1024+stripb(A.K,RB)+mx+15)/16*16; size_t sm=std::max(buf+(size_t)nw*16*G*LD*2,(size_t)1024+(KS>1?nw*G*RB/16*512:0)); if(sm*o>227*1024-1024*(o-1)||!smem_ok(k,sm)) continue;
      int N=p.N,K=A.K; __half*C=(__half*)p.C; { attempt(b,p,fmt("RB%d G%d KC%d KS%d gpc%d grid%dx%d %s",RB,G,KC,KS,gpc,gx,Sx,ord),ar,[=]{ launch(k,dim3(gx,Sx),nw*32,sm,tm,den,dbo,dep,dr,C,N,K,ng,KS,gpc,(u32)buf); }); } } } }
// ---------------------------------------------------------------- V
template<int RB> static void run_vec8(Best&b,Prob&p,const vector<int>&P0,const char*ord){
  const Csr&A=*p.A; if(stripb(A.K,RB)+1024>227*1024||(p.N*2)%RB) return; auto Pn=pad(P0,8); const int nw=Pn.size()/8; auto ar=std::make_shared<Arena>(); const int Sx=p.N*2/RB;
  vector<vector<char>> wb(nw); par(nw,[&](size_t a,size_t z){ for(size_t w=a;w<z;w++){ vector<std::pair<int,int>> ce; // column, slot*? 
      vector<int> cols; for(int i=0;i<8;i++){ int r=Pn[w*8+i]; if(r>=0) cols.insert(cols.end(),A.col.begin()+A.ptr[r],A.col.begin()+A.ptr[r+1]); } std::sort(cols.begin(),cols.end()); cols.erase(std::unique(cols.begin(),cols.end()),cols.end());
      vector<vector<int>> bin(8); for(int i=(int)cols.size()-1;i>=0;i--) bin[cols[i]&7].push_back(cols[i]); vector<int> seq; size_t left=cols.size(); while(left){ int got=0; bool used[8]={}; for(int q=0;q<8;q++) if(bin[q].size()){ seq.push_back(bin[q].back()); bin[q].pop_back(); used[q]=true; got++; left--; }
        while(got<8&&left){ int m=0; for(int q=1;q<8;q++) if(bin[q].size()>bin[m].size()) m=q; seq.push_back(bin[m].back()); bin[m].pop_back(); got++; left--; } while(got<8&&!left&&seq.size()%16){ seq.push_back(-1); got++; } }
      while(seq.size()%16) seq.push_back(-1); std::map<int,int> at; for(size_t i=0;i<seq.size();i++) if(seq[i]>=0) at[seq[i]]=i; auto&o=wb[w]; o.resize(seq.size()/16*288,0);
      for(size_t i=0;i<seq.size();i++){ u16 k=seq[i]>=0?seq[i]:(int)(i&7)%A.K; memcpy(&o[i/16*288+(i%16)*2],&k,2); }
      for(int i=0;i<8;i++){ int r=Pn[w*8+i]; if(r>=0) for(int e=A.ptr[r];e<A.ptr[r+1];e++){ int s=at[A.col[e]],k=s&15; __half h(A.vh[e]); memcpy(&o[s/16*288+32+(i*4+((k&7)>>1))*8+(k>>3)*4+(k&1)*2],&h,2); } } } });
  vector<int> wo(nw); std::iota(wo.begin(),wo.end(),0); std::stable_sort(wo.begin(),wo.end(),[&](int x,int y){return wb[x].size()>wb[y].size();});
  auto tm=tmap(p.B,p.N,A.K,2,RB,128); auto k=strip_vec8<RB>;
  for(int oc=1;oc<=2;oc++){ int gx=std::max(1,NSM*oc/Sx),wpc=(nw+gx-1)/gx; gx=(nw+wpc-1)/wpc; if(wpc>16) continue; vector<int> P(gx*wpc*8,-1); vector<u32> vp(gx*wpc+1),bo(gx+1); vector<char> blob; u32 mx=0;
    for(int c=0;c<gx;c++){ for(int i=0;i<wpc;i++){ int slot=c*wpc+i,src=c+i*gx; if(src<nw){ int w=wo[(i&1)?std::min(nw,(i+1)*gx)-1-c>=i*gx?std::min(nw,(i+1)*gx)-1-c:src:src]; blob.insert(blob.end(),wb[w].begin(),wb[w].end()); for(int q=0;q<8;q++) P[slot*8+q]=Pn[w*8+q]; } vp[slot+1]=blob.size()/288; } bo[c+1]=blob.size(); mx=std::max(mx,bo[c+1]-bo[c]); }
    auto dbl=(const char*)ar->up(blob); auto dvp=ar->up(vp); bo.resize(gx+1); auto dbo=ar->up(bo); auto dr=ar->up(P); const int nws=gx*wpc;
    for(int KS=1;KS<=8;KS*=2){ int wp=wpc*KS; if(wp>16||(wp<4&&KS<8)) continue; size_t sm=std::max(1024+stripb(A.K,RB)+mx+16,(size_t)1024+(KS>1?wp*RB/32*512:0)); if(sm*oc>227*1024-1024*(oc-1)||!smem_ok(k,sm)) continue; int N=p.N,K=A.K; __half*C=(__half*)p.C;
      { attempt(b,p,fmt("RB%d KS%d wpc%d grid%dx%d %s",RB,KS,wpc,gx,Sx,ord),ar,[=]{ launch(k,dim3(gx,Sx),wp*32,sm,tm,dbl,dbo,dvp,dr,C,N,K,nws,KS,wpc); }); } } } }
// ---------------------------------------------------------------- C16 / C32: rows (windows of R rows) by length, dealt to the CTAs
template<int RB,int TPR> static void run_fma16(Best&b,Prob&p){
  const Csr&A=*p.A; if(stripb(A.K,RB)+1024>227*1024||(p.N*2)%RB) return; auto P=by_length(A); const int M=A.M,Sx=p.N*2/RB; auto ar=std::make_shared<Arena>(); auto tm=tmap(p.B,p.N,A.K,2,RB,128); auto k=strip_fma16<RB,TPR>;
  for(int oc=1;oc<=2;oc++){ int gx=std::max(1,std::min(M,NSM*oc/Sx)); vector<u32> rp(M+1),en,bo(gx+1); vector<int> id(M); vector<int> nxt(gx); u32 mx=0; // CTA c owns rows [M*c/gx,M*(c+1)/gx): deal the sorted rows round robin
    vector<vector<int>> own(gx); { int i=0; while(i<M) for(int z=0;z<gx&&i<M;z++){ int c=(i/gx&1)?gx-1-z:z; int cap=(int)((long long)M*(c+1)/gx)-(int)((long long)M*c/gx); if((int)own[c].size()<cap) own[c].push_back(P[i++]); else { for(int d=0;d<gx;d++){ int cp=(int)((long long)M*(d+1)/gx)-(int)((long long)M*d/gx); if((int)own[d].size()<cap){ own[d].push_back(P[i++]); break; } } } } }
    int s=0; for(int c=0;c<gx;c++){ for(int r:own[c]){ id[s]=r; for(int e=A.ptr[r];e<A.ptr[r+1];e++){ u16 v; __half h(A.vh[e]); memcpy(&v,&h,2); en.push_back(((u32)v<<16)|(u32)A.col[e]); } int n=A.ptr[r+1]-A.ptr[r]; u32 last=n?A.col[A.ptr[r+1]-1]:0; while(n%4){ en.push_back(last); n++; } rp[++s]=en.size(); } bo[c+1]=en.size()*4; mx=std::max(mx,bo[c+1]-bo[c]); }
    auto den=(const char*)ar->up(en); auto drp=ar->up(rp); bo.resize(gx+1); auto dbo=ar->up(bo); auto did=ar->up(id); size_t sm=1024+stripb(A.K,RB)+mx+16; if(sm*oc>227*1024-1024*(oc-1)||!smem_ok(k,sm)) continue; int N=p.N,K=A.K; __half*C=(__half*)p.C;
    for(int th=256;th<=512;th*=2) { attempt(b,p,fmt("RB%d TPR%d thr%d grid%dx%d",RB,TPR,th,gx,Sx),ar,[=]{ launch(k,dim3(gx,Sx),th,sm,tm,den,dbo,drp,did,C,N,K,M,gx); }); } } }
template<int RB,int R,int TPR,bool GL> static void run_fma32(Best&b,Prob&p){
  const Csr&A=*p.A; if(stripb(A.K,RB)+1024>227*1024||(p.N*4)%RB) return; auto P=pad(by_length(A),R); const int M=P.size()/R,Sx=p.N*4/RB; auto ar=std::make_shared<Arena>(); auto tm=tmap(p.B,p.N,A.K,4,RB,128); auto k=strip_fma32<RB,R,TPR,GL>;
  for(int oc=1;oc<=2;oc++){ int gx=std::max(1,std::min(M,NSM*oc/Sx)); vector<vector<int>> own(gx); { int i=0; while(i<M) for(int z=0;z<gx&&i<M;z++){ int c=(i/gx&1)?gx-1-z:z; int cap=(int)((long long)M*(c+1)/gx)-(int)((long long)M*c/gx); if((int)own[c].size()<cap) own[c].push_back(i++); else for(int d=0;d<gx;d++){ int cp=(int)((long long)M*(d+1)/gx)-(int)((long long)M*d/gx); if((int)own[d].size()<cap){ own[d].push_back(i++); break; } } } }
    vector<u32> rp(M+1),bo(gx+1); vector<int> id(M*R); vector<float> bl; u32 mx=0; int s=0; const int QW=4+4*R; vector<float> row(R*A.K); 
    for(int c=0;c<gx;c++){ for(int w:own[c]){ vector<int> cols; for(int i=0;i<R;i++){ int r=P[w*R+i]; id[s*R+i]=r; if(r>=0) for(int e=A.ptr[r];e<A.ptr[r+1];e++){ row[i*A.K+A.col[e]]=A.vf[e]; cols.push_back(A.col[e]); } } std::sort(cols.begin(),cols.end()); cols.erase(std::unique(cols.begin(),cols.end()),cols.end());
        for(size_t q=0;q<cols.size();q+=4){ size_t o=bl.size(); bl.resize(o+QW,0.f); for(int j=0;j<4;j++){ bool in=q+j<cols.size(); u32 kk=in?cols[q+j]:cols.back(); memcpy(&bl[o+j],&kk,4); if(in) for(int i=0;i<R;i++){ bl[o+4+j*R+i]=row[i*A.K+kk]; row[i*A.K+kk]=0; } } } rp[++s]=bl.size()/QW; } bo[c+1]=bl.size()*4; mx=std::max(mx,bo[c+1]-bo[c]); }
    size_t sm=1024+stripb(A.K,RB)+(GL?0:mx)+16; if(sm*oc>227*1024-1024*(oc-1)||!smem_ok(k,sm)) continue; auto den=(const char*)ar->up(bl); auto drp=ar->up(rp); bo.resize(gx+1); auto dbo=ar->up(bo); auto did=ar->up(id); int N=p.N,K=A.K; float*C=(float*)p.C;
    for(int th=256;th<=512;th*=2) { attempt(b,p,fmt("RB%d R%d TPR%d GL%d thr%d grid%dx%d",RB,R,TPR,(int)GL,th,gx,Sx),ar,[=]{ launch(k,dim3(gx,Sx),th,sm,tm,den,dbo,drp,did,C,N,K,M,gx); }); } } }
// ---------------------------------------------------------------- gather
template<typename E,int T,int U> static void run_gather1(Best&b,Prob&p,std::shared_ptr<Arena> ar,const int2*den,const Item*dit,int ni,const Split*dsp,const int*dsl,float*ws,unsigned*cnt,int cut,const char*ord){
  constexpr int V=16/sizeof(E); if(p.N%(T*V)) return; int sl=p.N/(T*V),N=p.N; const E*B=(const E*)p.B; E*C=(E*)p.C; auto k=gather<E,T,U>; const int th=256; int gx=(int)(((long long)ni*T+th-1)/th);
  attempt(b,p,fmt("T%d U%d slices%d cut%d %s",T,U,sl,cut,ord),ar,[=]{ k<<<dim3(gx,sl),th,0,S>>>(den,dit,ni,dsp,dsl,ws,cnt,B,C,N); }); }
template<typename E> static void run_gather(Best&b,Prob&p,bool sorted,int cut){
  const Csr&A=*p.A; auto ar=std::make_shared<Arena>(); vector<int2> en(A.nnz()); par(A.nnz(),[&](size_t a,size_t z){ for(size_t i=a;i<z;i++){ float v=sizeof(E)==2?A.vh[i]:A.vf[i]; int x; memcpy(&x,&v,4); en[i]=make_int2(A.col[i],x); } });
  vector<Item> it; vector<Split> sp; vector<int> sl; int slots=0; for(int r=0;r<A.M;r++){ int n=A.ptr[r+1]-A.ptr[r]; if(n<=cut){ it.push_back({r,A.ptr[r],A.ptr[r+1],-1}); continue; } int parts=(n+cut-1)/cut; sp.push_back({r,slots,parts,0}); for(int q=0;q<parts;q++) it.push_back({r,A.ptr[r]+(int)((long long)n*q/parts),A.ptr[r]+(int)((long long)n*(q+1)/parts),(int)sp.size()-1}); slots+=parts; }
  if(sorted){ auto cls=[](const Item&a){ int n=a.e1-a.e0; return n<=4?0:n<=8?1:n<=16?2:n<=32?3:n<=64?4:n<=128?5:6; }; std::stable_sort(it.begin(),it.end(),[&](const Item&a,const Item&b){return cls(a)>cls(b);}); }
  sl.resize(it.size(),0); vector<int> used(sp.size(),0); for(size_t i=0;i<it.size();i++) if(it[i].split>=0) sl[i]=sp[it[i].split].first+used[it[i].split]++;
  auto den=ar->up(en); auto dit=ar->up(it); auto dsp=ar->up(sp); auto dsl=ar->up(sl); float*ws=(float*)ar->raw((size_t)slots*p.N*4); unsigned*cnt=(unsigned*)ar->raw(sp.size()*64*4); CK(cudaMemset(cnt,0,sp.size()*64*4+256)); int ni=it.size(); const char*o=sorted?"sorted":"natural";
  run_gather1<E,4,4>(b,p,ar,den,dit,ni,dsp,dsl,ws,cnt,cut,o); run_gather1<E,8,8>(b,p,ar,den,dit,ni,dsp,dsl,ws,cnt,cut,o); run_gather1<E,16,8>(b,p,ar,den,dit,ni,dsp,dsl,ws,cnt,cut,o); run_gather1<E,32,8>(b,p,ar,den,dit,ni,dsp,dsl,ws,cnt,cut,o); }
// ---------------------------------------------------------------- hybrid
template<int CW,int NST> static void run_hybrid(Best&b,Prob&p,const vector<int>&P0,float delta,const char*ord){
  const Csr&A=*p.A; if(p.N%(64*CW)) return; auto P=pad(P0,32); const int nb=P.size()/32,nk=(A.K+31)/32; auto ar=std::make_shared<Arena>(); vector<int> tp(nb+1),tc,rp(P.size()+1),order(nb); vector<__half> fr; vector<int2> en; vector<int> c(nk),map(nk); vector<long long> work(nb); size_t inn=0;
  for(int g=0;g<nb;g++){ std::fill(c.begin(),c.end(),0); for(int i=0;i<32;i++){ int r=P[g*32+i]; if(r>=0) for(int e=A.ptr[r];e<A.ptr[r+1];e++) c[A.col[e]/32]++; } int n=0; for(int k=0;k<nk;k++) if(c[k]>delta*1024){ map[k]=n++; tc.push_back(k); } else map[k]=-1; size_t base=fr.size(); fr.resize(base+(size_t)n*1024,__half(0.f)); size_t e0=en.size();
    for(int i=0;i<32;i++){ int r=P[g*32+i]; if(r>=0) for(int e=A.ptr[r];e<A.ptr[r+1];e++){ int t=map[A.col[e]/32]; if(t<0){ int x; memcpy(&x,&A.vh[e],4); en.push_back(make_int2(A.col[e],x)); } else { int kk=(A.col[e]&31)/16,k=A.col[e]&15,ri=i&15; int lane=(ri&7)*4+((k&7)>>1),reg=(ri>>3)+2*(k>>3); fr[base+((size_t)t*4+kk*2+i/16)*256+lane*8+reg*2+(k&1)]=__half(A.vh[e]); inn++; } } rp[g*32+i+1]=en.size(); }
    tp[g+1]=tp[g]+n; work[g]=n*20+(long long)(en.size()-e0); order[g]=g; }
  std::stable_sort(order.begin(),order.end(),[&](int x,int y){return work[x]>work[y];});
  auto dfr=(const uint4*)ar->up(fr); auto dtc=ar->up(tc); auto dtp=ar->up(tp); auto den=ar->up(en); auto drp=ar->up(rp); auto did=ar->up(P); auto dor=ar->up(order); auto tm=tmap(p.B,p.N,A.K,2,128,32); auto k=hybrid<CW,NST>; size_t sm=1024+NST*(CW*4096+2048)+32*(64*CW+4)*4; if(!smem_ok(k,sm)) return; int N=p.N; const __half*B=(const __half*)p.B; __half*C=(__half*)p.C;
  attempt(b,p,fmt("CW%d st%d delta%.2f tiles%d in%.0f%% %s",CW,NST,delta,tp[nb],100.0*inn/A.nnz(),ord),ar,[=]{ k<<<dim3(nb,N/(64*CW)),128*CW,sm,S>>>(tm,dfr,dtc,dtp,den,drp,did,dor,B,C,N); }); }
// ---------------------------------------------------------------- vendor libraries
static void run_cublas(Best&b,Prob&p){ const Csr&A=*p.A; if((size_t)A.M*A.K>(1u<<28)) return; auto ar=std::make_shared<Arena>(); const void*dA; if(p.esz==2){ vector<__half> d((size_t)A.M*A.K,__half(0.f)); for(int r=0;r<A.M;r++) for(int e=A.ptr[r];e<A.ptr[r+1];e++) d[(size_t)r*A.K+A.col[e]]=__half(A.vh[e]); dA=ar->up(d); } else { vector<float> d((size_t)A.M*A.K,0.f); for(int r=0;r<A.M;r++) for(int e=A.ptr[r];e<A.ptr[r+1];e++) d[(size_t)r*A.K+A.col[e]]=A.vf[e]; dA=ar->up(d); }
  int M=A.M,N=p.N,K=A.K; auto t=p.esz==2?CUDA_R_16F:CUDA_R_32F; void*B=p.B,*C=p.C; attempt(b,p,"dense",ar,[=]{ float al=1,be=0; cublasGemmEx(hb,CUBLAS_OP_N,CUBLAS_OP_N,N,M,K,&al,B,t,N,dA,t,K,&be,C,t,N,CUBLAS_COMPUTE_32F,CUBLAS_GEMM_DEFAULT); }); }
static void run_cusparse(Best&b,Prob&p){ const Csr&A=*p.A; auto ar=std::make_shared<Arena>(); auto dp=ar->up(A.ptr),dc=ar->up(A.col); void*dv; if(p.esz==2){ vector<__half> h(A.nnz()); for(size_t i=0;i<h.size();i++) h[i]=__half(A.vh[i]); dv=ar->up(h); } else dv=ar->up(A.vf); auto t=p.esz==2?CUDA_R_16F:CUDA_R_32F;
  cusparseSpMatDescr_t a; cusparseDnMatDescr_t x,y; cusparseCreateCsr(&a,A.M,A.K,A.nnz(),dp,dc,dv,CUSPARSE_INDEX_32I,CUSPARSE_INDEX_32I,CUSPARSE_INDEX_BASE_ZERO,t); cusparseCreateDnMat(&x,A.K,p.N,p.N,p.B,t,CUSPARSE_ORDER_ROW); cusparseCreateDnMat(&y,A.M,p.N,p.N,p.C,t,CUSPARSE_ORDER_ROW);
  for(auto alg:{CUSPARSE_SPMM_ALG_DEFAULT,CUSPARSE_SPMM_CSR_ALG2,CUSPARSE_SPMM_CSR_ALG3}){ float al=1,be=0; size_t n=0; if(cusparseSpMM_bufferSize(hs,CUSPARSE_OPERATION_NON_TRANSPOSE,CUSPARSE_OPERATION_NON_TRANSPOSE,&al,a,x,&be,y,CUDA_R_32F,alg,&n)) continue; void*buf=ar->raw(n); cusparseSpMM_preprocess(hs,CUSPARSE_OPERATION_NON_TRANSPOSE,CUSPARSE_OPERATION_NON_TRANSPOSE,&al,a,x,&be,y,CUDA_R_32F,alg,buf); CK(cudaDeviceSynchronize());
    attempt(b,p,fmt("alg%d",(int)alg),ar,[=]{ float al=1,be=0; cusparseSpMM(hs,CUSPARSE_OPERATION_NON_TRANSPOSE,CUSPARSE_OPERATION_NON_TRANSPOSE,&al,a,x,&be,y,CUDA_R_32F,alg,buf); }); } }
static __global__ void empty_k(){}
// ================================================================ main
static void solve(const Csr&A,vector<int> Ns,bool reorder,bool f32){
  const int NR=*std::max_element(Ns.begin(),Ns.end()); vector<float> bf((size_t)A.K*NR); par(bf.size(),[&](size_t a,size_t z){ for(size_t i=a;i<z;i++) bf[i]=(int)(hash32((u32)i*747796405u+99)>>8)*(2.f/16777216)-1.f; });
  vector<int> rows; if(A.nnz()*(double)NR<6e8) rows=ident(A.M); else { auto L=by_length(A); for(int i=0;i<8;i++) rows.push_back(L[i]); Rng g(3); for(int i=0;i<1500;i++) rows.push_back(g.u()%A.M); }
  void*dB,*dC; CK(cudaMalloc(&dB,(size_t)A.K*NR*4+1024)); CK(cudaMalloc(&dC,(size_t)A.M*NR*4+1024)); vector<int> bsa; bool clus=A.name.substr(0,4)=="clus";
  if(reorder) bsa=bsa_order(A,32,clus?.3f:.5f);
  for(int esz=2;esz<=(f32?4:2);esz+=2){ Prob p; p.A=&A;p.esz=esz;p.B=dB;p.C=dC;p.rows=rows;p.NR=NR;p.ref.resize(rows.size()*NR);
    vector<float> bb=bf; if(esz==2) par(bb.size(),[&](size_t a,size_t z){ for(size_t i=a;i<z;i++) bb[i]=__half2float(__float2half(bf[i])); });
    par(rows.size(),[&](size_t a,size_t z){ vector<double> s(NR); for(size_t i=a;i<z;i++){ std::fill(s.begin(),s.end(),0.0); int r=rows[i]; for(int e=A.ptr[r];e<A.ptr[r+1];e++){ double v=esz==2?A.vh[e]:A.vf[e]; const float*x=&bb[(size_t)A.col[e]*NR]; for(int j=0;j<NR;j++) s[j]+=v*x[j]; } for(int j=0;j<NR;j++) p.ref[i*NR+j]=s[j]; } });
    for(int N:Ns){ p.N=N; p.tag=A.name+fmt(" N%d %s",N,esz==2?"f16":"f32");
      if(esz==2){ vector<__half> h((size_t)A.K*N); par(A.K,[&](size_t a,size_t z){ for(size_t k=a;k<z;k++) for(int j=0;j<N;j++) h[k*N+j]=__half(bb[k*NR+j]); }); CK(cudaMemcpy(dB,h.data(),h.size()*2,cudaMemcpyHostToDevice)); }
      else { vector<float> h((size_t)A.K*N); par(A.K,[&](size_t a,size_t z){ for(size_t k=a;k<z;k++) for(int j=0;j<N;j++) h[k*N+j]=bb[k*NR+j]; }); CK(cudaMemcpy(dB,h.data(),h.size()*4,cudaMemcpyHostToDevice)); }
      const auto I=ident(A.M);
      if(esz==2){
        if(!A.big){ { Best b; run_tile<128,1>(b,p,I,"id"); run_tile<128,2>(b,p,I,"id"); run_tile<64,1>(b,p,I,"id"); run_tile<64,2>(b,p,I,"id"); report(b,p,"D1tile"); }
          { Best b; run_scatter<128,1,128>(b,p,I,"id"); run_scatter<128,2,128>(b,p,I,"id"); run_scatter<64,1,128>(b,p,I,"id"); run_scatter<64,2,128>(b,p,I,"id"); run_scatter<128,2,64>(b,p,I,"id"); report(b,p,"D2scatter"); }
          { Best b; run_vec8<128>(b,p,I,"id"); run_vec8<64>(b,p,I,"id"); report(b,p,"Vvec8"); } if(reorder){ Best b; run_vec8<128>(b,p,bsa,"bsa"); run_vec8<64>(b,p,bsa,"bsa"); report(b,p,"Vvec8+bsa"); }
          { Best b; run_fma16<128,1>(b,p); run_fma16<128,2>(b,p); run_fma16<128,4>(b,p); run_fma16<64,4>(b,p); run_fma16<64,8>(b,p); report(b,p,"C16strip"); } }
        { Best b; run_gather<__half>(b,p,true,512); run_gather<__half>(b,p,true,128); if(A.big) run_gather<__half>(b,p,false,512); report(b,p,"Ggather"); }
        if(reorder){ for(int q=0;q<2;q++){ Best b; for(float d:{.02f,.1f,.25f}){ run_hybrid<2,6>(b,p,q?bsa:I,d,q?"bsa":"id"); run_hybrid<1,8>(b,p,q?bsa:I,d,q?"bsa":"id"); } report(b,p,q?"Hhybrid+bsa":"Hhybrid"); } }
      } else {
        if(!A.big){ Best b; run_fma32<128,1,1,false>(b,p); run_fma32<128,1,4,false>(b,p); run_fma32<128,2,2,false>(b,p); run_fma32<128,4,4,false>(b,p); run_fma32<128,1,4,true>(b,p); run_fma32<128,2,1,true>(b,p); run_fma32<128,4,1,true>(b,p); run_fma32<128,4,2,true>(b,p); run_fma32<64,1,8,false>(b,p); run_fma32<64,4,2,true>(b,p); report(b,p,"C32strip"); }
        { Best b; run_gather<float>(b,p,true,512); run_gather<float>(b,p,true,128); if(A.big) run_gather<float>(b,p,false,512); report(b,p,"Ggather"); } }
      { Best b; run_cublas(b,p); report(b,p,"cuBLAS"); } { Best b; run_cusparse(b,p); report(b,p,"cuSPARSE"); }
    } }
  cudaFree(dB);cudaFree(dC); }
int main(int argc,char**argv){
  bool st=false,graphs=false,f32=true,clus=false; vector<int> Ns={32,128,256,512}; vector<std::string> files,only; for(int i=1;i<argc;i++){ std::string a=argv[i]; if(a=="--stats") st=true; else if(a=="--graphs") graphs=true; else if(a=="--graph") only.push_back(argv[++i]); else if(a=="--clustered") clus=true; else if(a=="--f16") f32=false; else if(a=="--n") { Ns.clear(); char*s=argv[++i]; for(char*t=strtok(s,",");t;t=strtok(0,",")) Ns.push_back(atoi(t)); } else files.push_back(a); }
  if(st){ for(auto&f:files){ Csr A=load(f); stats(A,ident(A.M),"natural"); for(float al:{.3f,.5f,.7f}){ int nc; auto P=bsa_order(A,32,al,&nc); stats(A,P,fmt("bsa alpha %.1f clusters %d",al,nc).c_str()); } }
    if(clus){ for(auto A:{clustered(8192,256,16,.5,.001),clustered(4096,64,32,.2,.002)}){ stats(A,ident(A.M),"natural"); for(float al:{.1f,.3f,.5f}){ int nc; auto P=bsa_order(A,32,al,&nc); stats(A,P,fmt("bsa alpha %.1f clusters %d",al,nc).c_str()); } } } return 0; }
  CK(cudaSetDevice(0)); cudaDeviceProp pr; CK(cudaGetDeviceProperties(&pr,0)); NSM=pr.multiProcessorCount; CK(cudaStreamCreateWithFlags(&S,cudaStreamNonBlocking)); CK(cudaMalloc(&flushbuf,FLUSH)); cublasCreate(&hb); cublasSetStream(hb,S); void*wsb; CK(cudaMalloc(&wsb,32<<20)); cublasSetWorkspace(hb,wsb,32<<20); cusparseCreate(&hs); cusparseSetStream(hs,S);
  printf("# %s, %d SMs; empty kernel in a graph %.2f us\n",pr.name,NSM,hot([]{ empty_k<<<132,256,0,S>>>(); })); printf("RES,matrix,M,K,nnz,sparsity,N,prec,system,config,hot_us,cold_us,rel_err,byte_floor_us\n");
  auto t0=std::chrono::steady_clock::now(); auto el=[&](const std::string&n){ printf("# %s done at %.1f s\n",n.c_str(),std::chrono::duration<double>(std::chrono::steady_clock::now()-t0).count()); fflush(stdout); };
  for(auto&f:files){ Csr A=load(f); bool re=A.K<=4608&&A.M<=4096; solve(A,Ns,re,f32); el(A.name); }
  if(clus){ for(int i=0;i<2;i++){ Csr A=i?clustered(4096,64,32,.2,.002):clustered(8192,256,16,.5,.001); A.big=A.K>3400; solve(A,{128,512},true,false); el(A.name); } }
  const char*names[6]={"powerlaw_23k_8","powerlaw_100k_20","powerlaw_300k_20","banded_200k_16","powerlaw_1000k_10","banded_1000k_20"};
  if(graphs||only.size()){ for(int i=0;i<6;i++){ if(!graphs&&std::find(only.begin(),only.end(),names[i])==only.end()) continue; Csr A=i==0?powerlaw(23000,8):i==1?powerlaw(100000,20):i==2?powerlaw(300000,20):i==3?banded(200000,16,64):i==4?powerlaw(1000000,10):banded(1000000,20,2000); A.big=true; vector<int> ns=i<2?vector<int>{32,128,256,512}:i==4?vector<int>{32,128}:vector<int>{32,128,256}; if(only.size()) ns=Ns; solve(A,ns,false,f32); el(A.name); } }
  printf("# failures %d\n",nfail); return nfail!=0; }
