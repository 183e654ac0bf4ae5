/* Memory that is exported through open files. Usage: exports WHAT; each stands still at its end, with what it
 * has. send PATH      exports 8 MiB, gives the file to a program that connects there, frees the memory;
 * prints "sent" receive PATH   imports from what comes, twice, exports through it; prints RM's three answers
 * many exports 1 MiB as often as it may, 512 times through each file; prints how often, and RM's last answer;
 *                  told, it closes all files, and again frees the memory
 *   message        a child exports 4 MiB, puts the file into a message and ends; prints "made"; told, it
 * drops the message freed          exports what was freed, and what is no memory; prints RM's answers imports
 * imports 1 MiB as often as it may; prints how often, and RM's last answer flip           exports and imports
 * while a thread changes what they name; prints "done N" */
#include "../../../native_sched/nvidia/rm/export_abi.h"
#include "../gpu.h"
#include "../pass_fd.h"
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum { FLIPS_MIN = 500 };

static int64_t export_to(const struct gpu *g, int fd, uint32_t object)
{
    struct rm_export_object p = {.type = 1, .device = DEVICE, .object = object, .fd = fd};

    return rm_control(g->ctl, g->client, g->client, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, &p,
                      sizeof(p));
}

static int64_t import_from(const struct gpu *g, int fd, uint32_t handle)
{
    struct rm_import_object p = {.fd = fd, .type = 1, .parent = DEVICE, .object = handle};

    return rm_control(g->ctl, g->client, g->client, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, &p,
                      sizeof(p));
}

static int64_t export_at(const struct gpu *g, int fd, uint32_t object, uint16_t place)
{
    static struct rm_export_objects p;

    p = (struct rm_export_objects){
        .fd = fd, .device = DEVICE, .max = RM_EXPORT_OBJECTS, .object = {object}, .count = 1, .index = place};
    return rm_control(g->ctl, g->client, g->client, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, &p,
                      sizeof(p));
}

static int control_file(void)
{
    return open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
}

static int pass(int socket, int fd, bool receives)
{
    fd = pass_fd(socket, fd, receives);
    must(fd >= 0, "message");
    return fd;
}

static struct sockaddr_un place_of(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    return at;
}

static void send_one(const struct gpu *g, const char *path)
{
    struct sockaddr_un at = place_of(path);
    int server = socket(AF_UNIX, SOCK_STREAM, 0), fd = control_file();

    must(rm_memory(g->ctl, g->client, FIRST_MEMORY, 8 * MIB) == NV_OK, "memory");
    must(export_to(g, fd, FIRST_MEMORY) == NV_OK, "export");
    must(!bind(server, (struct sockaddr *)&at, sizeof(at)) && !listen(server, 1), path);
    say("listens");
    pass(accept(server, NULL, NULL), fd, false);
    must(rm_free(g->ctl, g->client, FIRST_MEMORY) == NV_OK && !close(fd), "free");
    say("sent");
}

static void receive_one(const struct gpu *g, const char *path)
{
    struct sockaddr_un at = place_of(path);
    int from = socket(AF_UNIX, SOCK_STREAM, 0), fd;

    must(!connect(from, (struct sockaddr *)&at, sizeof(at)), path);
    fd = pass(from, -1, true);
    say("%lld %lld %lld", (long long)import_from(g, fd, FIRST_MEMORY), (long long)import_from(g, fd, 0),
        (long long)export_at(g, fd, 0, 0));
}

static void many(const struct gpu *g)
{
    enum { FILES = 64 };
    int fd[FILES], n = 0, exported = 0;
    int64_t status = NV_OK;

    must(rm_memory(g->ctl, g->client, FIRST_MEMORY, MIB) == NV_OK, "memory");
    for (; n < FILES && status == NV_OK; n++) {
        fd[n] = control_file();
        for (uint16_t i = 0; i < RM_EXPORT_OBJECTS && status == NV_OK; i++)
            exported += (status = export_at(g, fd[n], FIRST_MEMORY, i)) == NV_OK;
    }
    say("%d %lld", exported, (long long)status);
    told();
    while (n)
        close(fd[--n]);
    say("closed");
    told();
    must(rm_free(g->ctl, g->client, FIRST_MEMORY) == NV_OK, "free");
    say("freed");
}

static void message(void)
{
    int between[2];
    pid_t child;

    must(!socketpair(AF_UNIX, SOCK_DGRAM, 0, between), "socketpair");
    if ((child = fork()) == 0) {
        int fd = control_file();
        struct gpu g;

        gpu_open(&g);
        must(rm_memory(g.ctl, g.client, FIRST_MEMORY, 4 * MIB) == NV_OK, "memory");
        must(export_to(&g, fd, FIRST_MEMORY) == NV_OK, "export");
        pass(between[0], fd, false);
        _exit(0);
    }
    must(waitpid(child, NULL, 0) == child, "wait");
    say("made");
    told();
    close(between[0]);
    close(between[1]);
    say("dropped");
}

static void freed(const struct gpu *g)
{
    int fd = control_file();

    must(rm_memory(g->ctl, g->client, FIRST_MEMORY, MIB) == NV_OK, "memory");
    must(rm_free(g->ctl, g->client, FIRST_MEMORY) == NV_OK, "free");
    say("%lld %lld %lld %lld", (long long)export_to(g, fd, FIRST_MEMORY), (long long)export_to(g, fd, DEVICE),
        (long long)export_to(g, fd, g->client), (long long)export_to(g, 0, FIRST_MEMORY));
}

static void imports(const struct gpu *g)
{
    int fd = control_file();
    int64_t status;
    uint32_t n = 0;

    must(rm_memory(g->ctl, g->client, FIRST_MEMORY, MIB) == NV_OK, "memory");
    must(export_to(g, fd, FIRST_MEMORY) == NV_OK, "export");
    while ((status = import_from(g, fd, FIRST_MEMORY + 1 + n)) == NV_OK)
        n++;
    say("%u %lld", n, (long long)status);
}

static volatile struct rm_export_objects out;
static volatile struct rm_import_objects in;
static volatile bool stopped;
static int files[4];

static void *flip_all(void *arg)
{
    for (unsigned int i = 0; !stopped; i++) {
        out.fd = in.fd = files[i % 4];
        out.object[0] = FIRST_MEMORY + i % 3;
        out.object[1] = i % 5 ? FIRST_MEMORY + 1 : DEVICE;
        out.count = (uint16_t)(i % 7);
        out.index = (uint16_t)(i % 3);
        in.object[0] = i % 2 ? FIRST_MEMORY : FIRST_MEMORY + 0x100 + i % 16;
        in.object[1] = i % 3 ? 0 : FIRST_MEMORY + 1;
        in.count = (uint16_t)(i % 4);
    }
    return arg;
}

static void flip(const struct gpu *g)
{
    time_t end = time(NULL) + 1;
    pthread_t thread;
    uint32_t n = 0;

    for (int i = 0; i < 3; i++) {
        must(rm_memory(g->ctl, g->client, FIRST_MEMORY + (uint32_t)i, MIB) == NV_OK, "memory");
        files[i] = control_file();
    }
    files[3] = g->card;
    must(!pthread_create(&thread, NULL, flip_all, NULL), "thread");
    for (; n < FLIPS_MIN || time(NULL) < end; n++) {
        out.device = in.parent = DEVICE;
        out.max = 8;
        rm_control(g->ctl, g->client, g->client, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD,
                   (void *)(uintptr_t)&out, sizeof(out));
        rm_control(g->ctl, g->client, g->client, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD,
                   (void *)(uintptr_t)&in, sizeof(in));
        if (n % 64 == 63)
            for (uint32_t i = 0; i < 16; i++)
                rm_free(g->ctl, g->client, FIRST_MEMORY + 0x100 + i);
        if (n % 256 == 255 && !close(files[n / 256 % 3]))
            files[n / 256 % 3] = control_file();
    }
    stopped = true;
    pthread_join(thread, NULL);
    say("done %u", n);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    struct gpu g;

    if (!strcmp(what, "message")) {
        message();
        hold();
    }
    gpu_open(&g);
    if (!strcmp(what, "send") && argc > 2)
        send_one(&g, argv[2]);
    else if (!strcmp(what, "receive") && argc > 2)
        receive_one(&g, argv[2]);
    else if (!strcmp(what, "many"))
        many(&g);
    else if (!strcmp(what, "freed"))
        freed(&g);
    else if (!strcmp(what, "imports"))
        imports(&g);
    else if (!strcmp(what, "flip"))
        flip(&g);
    else
        return 2;
    hold();
}
