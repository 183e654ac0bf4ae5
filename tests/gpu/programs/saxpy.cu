// y = a x + y, small enough for every tool; 0 if it is right.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void saxpy(int n, float a, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

static int check(const char *name, cudaError_t code)
{
    if (code)
        printf("{\"program\": \"saxpy\", \"ok\": false, \"error\": \"%s: %d %s\"}\n", name, code, cudaGetErrorString(code));
    return code;
}

int main()
{
    const int n = 1 << 16;
    static float host[1 << 16];
    float *x = nullptr, *y = nullptr;
    if (check("cudaMalloc", cudaMalloc(&x, sizeof(host))) || check("cudaMalloc", cudaMalloc(&y, sizeof(host))))
        return 1;
    for (int i = 0; i < n; i++)
        host[i] = 1;
    if (check("cudaMemcpy", cudaMemcpy(x, host, sizeof(host), cudaMemcpyHostToDevice)) ||
        check("cudaMemcpy", cudaMemcpy(y, host, sizeof(host), cudaMemcpyHostToDevice)))
        return 1;
    saxpy<<<n / 256, 256>>>(n, 2, x, y);
    if (check("saxpy", cudaGetLastError()) || check("cudaDeviceSynchronize", cudaDeviceSynchronize()) ||
        check("cudaMemcpy", cudaMemcpy(host, y, sizeof(host), cudaMemcpyDeviceToHost)))
        return 1;
    int wrong = 0;
    for (int i = 0; i < n; i++)
        wrong += host[i] != 3;
    cudaFree(x);
    cudaFree(y);
    printf("{\"program\": \"saxpy\", \"ok\": %s, \"wrong\": %d}\n", wrong ? "false" : "true", wrong);
    return wrong != 0;
}
