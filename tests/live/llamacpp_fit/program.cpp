// llama.cpp's own fitting (common/fit.cpp, included as it is) on GPUs that only say how large they are.
//
// The devices answer ggml's questions as its CUDA backend does (ggml/src/ggml-cuda/ggml-cuda.cu at 0c1e57098:
// alignment, rows padded to 512 numbers, a copy in f16 of a cache of another type beside flash attention,
// operations on host weights taken over from 32 tokens on, asynchronous with events), so that the graphs which
// llama.cpp reserves are laid out as on such GPUs. Nothing is allocated or computed: the fitting itself
// loads models with no_alloc.
//
//     fit_program shapes < CASES     each tensor of the model that such keys make: name -> dimensions
//     fit_program fit < CASES        what the fitting decides, and every measurement on its way
//
// A case is a line of words NAME=VALUE; an answer is a line of JSON. Each case runs in a process of its own.

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "llama.h"
#include "gguf.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

// ---- the devices ---------------------------------------------------------------------------------------

static const int MOST = 8;
static const char * NAMES[MOST] = {"GPU0", "GPU1", "GPU2", "GPU3", "GPU4", "GPU5", "GPU6", "GPU7"};
static size_t free_bytes[MOST];

static size_t number(ggml_backend_dev_t dev) { return (size_t) dev->context; }
static const char * device_name(ggml_backend_dev_t dev) { return NAMES[number(dev)]; }
static void memory(ggml_backend_dev_t dev, size_t * free, size_t * total) {
    *free = *total = free_bytes[number(dev)];
}
static enum ggml_backend_dev_type type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; }
static void props(ggml_backend_dev_t dev, ggml_backend_dev_props * all) {
    memset(all, 0, sizeof(*all));
    all->name = all->description = device_name(dev);
    all->type = GGML_BACKEND_DEVICE_TYPE_GPU;
    memory(dev, &all->memory_free, &all->memory_total);
    all->caps.async = all->caps.host_buffer = all->caps.events = true;
}

static const char * buffer_name(ggml_backend_buffer_type_t buft) { return device_name(buft->device); }
// States are allocated even so (src/llama-memory-recurrent.cpp): a buffer that nobody may read.
static void gone(ggml_backend_buffer_t) {}
static void * base(ggml_backend_buffer_t) { return (void *) 4096; }
static void cleared(ggml_backend_buffer_t, uint8_t) {}
static ggml_backend_buffer_t no_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    ggml_backend_buffer_i calls = {};
    calls.free_buffer = gone;
    calls.get_base = base;
    calls.clear = cleared;
    return ggml_backend_buffer_init(buft, calls, nullptr, size);
}
static size_t alignment(ggml_backend_buffer_type_t) { return 128; }
static size_t taken(ggml_backend_buffer_type_t, const ggml_tensor * tensor) {
    size_t size = ggml_nbytes(tensor);
    if (tensor->op == GGML_OP_FLASH_ATTN_EXT) {
        const ggml_tensor * k = tensor->src[1];
        const ggml_tensor * v = tensor->src[2];
        const bool one = v->view_src && (v->view_src == k || (v->view_src == k->view_src && v->view_offs == k->view_offs));
        if (k->type != GGML_TYPE_F16) {
            size = GGML_PAD(size, 128) + ggml_nelements(k) * ggml_type_size(GGML_TYPE_F16);
        }
        if (v->type != GGML_TYPE_F16 && !one) {
            size = GGML_PAD(size, 128) + ggml_nelements(v) * ggml_type_size(GGML_TYPE_F16);
        }
    }
    if (ggml_is_quantized(tensor->type) && tensor->ne[0] % 512) {
        size += ggml_row_size(tensor->type, 512 - tensor->ne[0] % 512);
    }
    return size;
}
static ggml_backend_buffer_type buffers[MOST];
static ggml_backend_buffer_type host_buffers;

static const char * host_name(ggml_backend_buffer_type_t) { return "GPU_Host"; }
static ggml_backend_buffer_t host_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    ggml_backend_buffer_t made = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    made->buft = buft;
    return made;
}

static ggml_guid_t guid() {
    static ggml_guid id = {7, 1};
    return &id;
}
static const char * backend_name(ggml_backend_t backend) { return device_name(backend->device); }
static void backend_free(ggml_backend_t backend) { delete backend; }
static void nothing(ggml_backend_t) {}
static ggml_status compute(ggml_backend_t, ggml_cgraph *) { return GGML_STATUS_FAILED; }
static void event(ggml_backend_t, ggml_backend_event_t) {}
static ggml_backend_t backend(ggml_backend_dev_t dev, const char *) {
    ggml_backend_i calls = {};
    calls.get_name = backend_name;
    calls.free = backend_free;
    calls.synchronize = nothing;
    calls.graph_compute = compute;
    calls.event_record = event;
    calls.event_wait = event;
    return new ggml_backend{guid(), calls, dev, nullptr};
}
static ggml_backend_buffer_type_t own_buffers(ggml_backend_dev_t dev) { return &buffers[number(dev)]; }
static ggml_backend_buffer_type_t pinned(ggml_backend_dev_t) { return &host_buffers; }
static bool every(ggml_backend_dev_t, const ggml_tensor *) { return true; }
static bool own(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    return buft->iface.get_name == buffer_name && buft->device == dev;
}
static bool takes_over(ggml_backend_dev_t, const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_GET_ROWS: return false;
        case GGML_OP_MUL_MAT: return op->ne[1] >= 32;
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ROPE:
        case GGML_OP_ROPE_BACK: return op->ne[2] >= 32;
        default: return ggml_nrows(op) >= 32;
    }
}
static ggml_backend_event_t new_event(ggml_backend_dev_t dev) { return new ggml_backend_event{dev, nullptr}; }
static void free_event(ggml_backend_dev_t, ggml_backend_event_t one) { delete one; }
static void wait_event(ggml_backend_dev_t, ggml_backend_event_t) {}

static ggml_backend_device devices[MOST];
static ggml_backend_reg registry;
static const char * registry_name(ggml_backend_reg_t) { return "GPU"; }
static size_t count(ggml_backend_reg_t) { return MOST; }
static ggml_backend_dev_t at(ggml_backend_reg_t, size_t index) { return &devices[index]; }
static void * no_address(ggml_backend_reg_t, const char *) { return nullptr; }

static void start_devices() {
    registry = {GGML_BACKEND_API_VERSION, {registry_name, count, at, no_address}, nullptr};
    ggml_backend_device_i calls = {};
    calls.get_name = calls.get_description = device_name;
    calls.get_memory = memory;
    calls.get_type = type;
    calls.get_props = props;
    calls.init_backend = backend;
    calls.get_buffer_type = own_buffers;
    calls.get_host_buffer_type = pinned;
    calls.supports_op = every;
    calls.supports_buft = own;
    calls.offload_op = takes_over;
    calls.event_new = new_event;
    calls.event_free = free_event;
    calls.event_synchronize = wait_event;
    for (size_t one = 0; one < MOST; one++) {
        devices[one] = {calls, &registry, (void *) one};
        buffers[one] = {{buffer_name, no_buffer, alignment, nullptr, taken, nullptr}, &devices[one], nullptr};
    }
    const ggml_backend_buffer_type_i & cpu = ggml_backend_cpu_buffer_type()->iface;
    host_buffers = {{host_name, host_buffer, cpu.get_alignment, nullptr, cpu.get_alloc_size, cpu.is_host}, &devices[0], nullptr};
    ggml_backend_register(&registry);
}

// ---- the fitting, and what it measures -----------------------------------------------------------------

static std::ostringstream measured, begun;
static bool first_measure = true, measuring = false;

static llama_model * loaded(const char * path, llama_model_params params) {
    begun.str("");
    begun << (first_measure ? "" : ",") << "{\"ngl\":" << params.n_gpu_layers << ",\"split\":[";
    measuring = true;
    for (size_t one = 0; params.tensor_split && one < MOST; one++) {
        begun << (one ? "," : "") << params.tensor_split[one];
    }
    begun << "],\"moved\":[";
    const llama_model_tensor_buft_override * moved = params.tensor_buft_overrides;
    for (size_t one = 0; moved && moved[one].pattern; one++) {
        std::string pattern = moved[one].pattern, text;
        for (char c : pattern) { text += c == '\\' ? "\\\\" : std::string(1, c); }
        begun << (one ? "," : "") << "[\"" << text << "\",\"" << ggml_backend_buft_name(moved[one].buft) << "\"]";
    }
    begun << "]";
    return llama_model_load_from_file(path, params);
}

#include "llama-ext.h"

static llama_memory_breakdown breakdown(const llama_context * ctx) {
    llama_memory_breakdown found = llama_get_memory_breakdown(ctx);
    if (!measuring) {
        return found;  // once more, to be printed
    }
    measuring = first_measure = false;
    measured << begun.str() << ",\"n_ctx\":" << llama_n_ctx(ctx) << ",\"bytes\":{";
    bool first = true;
    for (const auto & [buft, mb] : found) {
        measured << (first ? "" : ",") << "\"" << ggml_backend_buft_name(buft) << "\":[" << mb.model << ","
                 << mb.context << "," << mb.compute << "]";
        first = false;
    }
    measured << "}}";
    return found;
}

#define llama_model_load_from_file loaded
#define llama_get_memory_breakdown breakdown
#include "common/fit.cpp"
#undef llama_model_load_from_file
#undef llama_get_memory_breakdown

bool tty_can_use_colors() { return false; }  // of common/common.cpp, for common/log.cpp

// ---- cases ---------------------------------------------------------------------------------------------

using Case = std::map<std::string, std::string>;

static long long value(const Case & one, const char * name, long long usual) {
    auto found = one.find(name);
    return found == one.end() ? usual : atoll(found->second.c_str());
}

static std::vector<long long> values(const Case & one, const char * name) {
    std::vector<long long> found;
    auto text = one.find(name);
    std::stringstream words(text == one.end() ? "" : text->second);
    for (std::string word; std::getline(words, word, ',');) { found.push_back(atoll(word.c_str())); }
    return found;
}

extern "C++" const std::vector<std::pair<std::string, ggml_tensor *>> & llama_internal_get_tensor_map(const llama_model *);
static void no_data(ggml_tensor *, void *) {}

static std::string shapes(const Case & one) {
    gguf_init_params how = {true, nullptr};
    gguf_context * keys = gguf_init_from_file(one.at("path").c_str(), how);
    llama_model_params params = llama_model_default_params();
    params.no_alloc = params.load_mtp = true;
    params.n_gpu_layers = 0;
    llama_model * model = llama_model_init_from_user(keys, no_data, nullptr, params);
    std::ostringstream out;
    out << "{\"name\":\"" << one.at("name") << "\",\"shapes\":{";
    bool first = true;
    if (model) {
        for (const auto & [name, tensor] : llama_internal_get_tensor_map(model)) {
            out << (first ? "" : ",") << "\"" << name << "\":[" << tensor->ne[0] << "," << tensor->ne[1] << ","
                << tensor->ne[2] << "," << tensor->ne[3] << "]";
            first = false;
        }
    }
    out << "}}";
    return out.str();
}

static std::string fit(const Case & one) {
    std::vector<long long> sizes = values(one, "free"), margins = values(one, "margins");
    llama_model_params model = llama_model_default_params();
    std::vector<ggml_backend_dev_t> taken_devices;
    for (size_t index = 0; index < sizes.size(); index++) {
        free_bytes[index] = sizes[index];
        taken_devices.push_back(&devices[index]);
    }
    taken_devices.push_back(nullptr);
    model.devices = taken_devices.data();
    model.n_gpu_layers = value(one, "ngl", model.n_gpu_layers);
    model.load_mtp = value(one, "mtp", 0);
    llama_context_params context = llama_context_default_params();
    context.n_ctx = value(one, "n_ctx", 0);
    context.n_batch = value(one, "n_batch", 2048);
    context.n_ubatch = value(one, "n_ubatch", 512);
    context.n_seq_max = value(one, "slots", 1);
    context.kv_unified = value(one, "unified", 0);
    context.n_outputs_max = value(one, "outputs", context.n_seq_max);
    context.n_rs_seq = value(one, "drafts", 0);
    context.swa_full = value(one, "swa_full", 0);
    context.flash_attn_type = value(one, "flash", 1) ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    context.type_k = (ggml_type) value(one, "type_k", GGML_TYPE_F16);
    context.type_v = (ggml_type) value(one, "type_v", GGML_TYPE_F16);

    llama_model_params draft_model = model;
    llama_context_params draft_context = context;
    draft_context.n_rs_seq = 0;
    draft_context.n_outputs_max = value(one, "draft_outputs", context.n_seq_max);
    draft_context.type_k = (ggml_type) value(one, "draft_type_k", GGML_TYPE_F16);
    draft_context.type_v = (ggml_type) value(one, "draft_type_v", GGML_TYPE_F16);
    const bool own_draft = one.count("draft");
    if (value(one, "mtp", 0)) { draft_context.ctx_type = LLAMA_CONTEXT_TYPE_MTP; }
    common_fit_extra_model extra = {own_draft ? one.at("draft").c_str() : one.at("path").c_str(), &draft_model, &draft_context, !own_draft};

    std::vector<float> split(llama_max_devices(), 0.0f);
    std::vector<llama_model_tensor_buft_override> moved(llama_max_tensor_buft_overrides(), {nullptr, nullptr});
    std::vector<size_t> kept(llama_max_devices(), 1024ull << 20);
    for (size_t index = 0; index < margins.size(); index++) { kept[index] = margins[index]; }
    common_params_fit_status status = COMMON_PARAMS_FIT_STATUS_SUCCESS;
    if (value(one, "measure", 0)) {
        std::vector<ggml_backend_dev_t> found;
        uint32_t layers, length, experts;
        common_get_device_memory_data_impl(one.at("path").c_str(), &model, &context, found, layers, length, experts, GGML_LOG_LEVEL_ERROR);
    } else {
        status = common_fit_params(one.at("path").c_str(), &model, &context, split.data(), moved.data(), kept.data(),
            value(one, "n_ctx_min", 4096), own_draft || value(one, "mtp", 0) ? &extra : nullptr, GGML_LOG_LEVEL_ERROR);
    }
    std::ostringstream out;
    out << "{\"name\":\"" << one.at("name") << "\",\"status\":" << status << ",\"n_ctx\":" << context.n_ctx
        << ",\"ngl\":" << model.n_gpu_layers << ",\"split\":[";
    for (size_t index = 0; index < sizes.size(); index++) { out << (index ? "," : "") << split[index]; }
    out << "],\"measured\":[" << measured.str() << "]}";
    return out.str();
}

int main(int argc, char ** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    llama_log_set([](ggml_log_level level, const char * text, void *) { if (level >= GGML_LOG_LEVEL_ERROR) { fputs(text, stderr); } }, nullptr);
    ggml_backend_load_all();
    start_devices();
    llama_backend_init();
    for (std::string line; std::getline(std::cin, line);) {
        Case one;
        std::stringstream words(line);
        for (std::string word; words >> word;) {
            size_t equals = word.find('=');
            one[word.substr(0, equals)] = word.substr(equals + 1);
        }
        if (pid_t child = fork()) {
            int ended = 0;
            waitpid(child, &ended, 0);
            if (ended) { std::cout << "{\"name\":\"" << one["name"] << "\",\"failed\":" << ended << "}" << std::endl; }
            continue;
        }
        std::cout << (mode == "shapes" ? shapes(one) : fit(one)) << std::endl;
        _exit(0);
    }
    return 0;
}
