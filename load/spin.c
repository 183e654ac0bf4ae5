#include "cuda.h"

/* %globaltimer counts ns; real cards advance it every microsecond or so. `out`, where not 0, gets the time of
 * the start. */
static const char ptx[] = ".version 6.0\n"
                          ".target sm_70\n"
                          ".address_size 64\n"
                          ".visible .entry mgpu_spin(.param .u64 ns, .param .u64 out)\n"
                          "{\n"
                          "    .reg .pred %p<3>;\n"
                          "    .reg .u64 %t<8>;\n"
                          "    mov.u64 %t0, %globaltimer;\n"
                          "    ld.param.u64 %t1, [ns];\n"
                          "    ld.param.u64 %t2, [out];\n"
                          "    setp.eq.u64 %p0, %t2, 0;\n"
                          "    @%p0 bra again;\n"
                          "    cvta.to.global.u64 %t3, %t2;\n"
                          "    st.global.u64 [%t3], %t0;\n"
                          "again:\n"
                          "    mov.u64 %t4, %globaltimer;\n"
                          "    sub.u64 %t5, %t4, %t0;\n"
                          "    setp.lt.u64 %p1, %t5, %t1;\n"
                          "    @%p1 bra again;\n"
                          "    ret;\n"
                          "}\n";

cuda_handle spin_load(void)
{
    cuda_handle module, function;

    cuda_must(cuda.module_load(&module, ptx), "cuModuleLoadData");
    cuda_must(cuda.module_function(&function, module, "mgpu_spin"), "cuModuleGetFunction");
    return function;
}

int spin_launch(cuda_handle function, uint64_t ns, cuda_handle stream)
{
    uint64_t out = 0;
    void *params[] = {&ns, &out};

    return cuda.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}
