// A libcuda that computes nothing: it accepts every kernel, and shows each launch to `launched`.
// Triton's own launcher runs with it where no GPU is. Only what that launcher and its loader call is here.
#include <cuda.h>

#define RETURNED(name, ...) \
    CUresult name(__VA_ARGS__) { return CUDA_SUCCESS; }

void (*launched)(unsigned x, unsigned y, unsigned z, unsigned threads, void* stream, void* function, void** parameters);

CUresult cuLaunchKernelEx(const CUlaunchConfig* how, CUfunction function, void** parameters, void** extra) {
    launched(how->gridDimX, how->gridDimY, how->gridDimZ, how->blockDimX, how->hStream, function, parameters);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) { return *device = 0, CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) { return *context = (CUcontext)1, CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule* module, const void* image) { return *module = (CUmodule)image, CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char** text) { return *text = "an error", CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    return *function = (CUfunction)module, CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    // An H100: compute capability 9.0, and that much shared memory.
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                         : 232448;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
    return *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0, CUDA_SUCCESS;
}

RETURNED(cuInit, unsigned flags)
RETURNED(cuCtxSetCurrent, CUcontext context)
RETURNED(cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device)
RETURNED(cuModuleUnload, CUmodule module)
RETURNED(cuFuncSetAttribute, CUfunction function, CUfunction_attribute attribute, int value)
RETURNED(cuFuncSetCacheConfig, CUfunction function, CUfunc_cache configuration)
RETURNED(cuPointerGetAttribute, void* value, CUpointer_attribute attribute, CUdeviceptr pointer)
RETURNED(cuPointerGetAttributes, unsigned n, CUpointer_attribute* attributes, void** values, CUdeviceptr pointer)
RETURNED(cuCtxGetLimit, size_t* value, CUlimit limit)
RETURNED(cuCtxSetLimit, CUlimit limit, size_t value)
RETURNED(cuStreamIsCapturing, CUstream stream, CUstreamCaptureStatus* status)
