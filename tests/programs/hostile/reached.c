/* Memory that a NIC's driver could reach, as libcuda makes it known for each process. Prints RM's answers:
 * "object O space S token T memory M of P", P that of naming a process; after a line of input, with the
 * memory freed, "freed F". */
#include "../rm.h"

enum { REACHED = 0x800, SPACE, MEMORY, BY_BAR1 = 1, BYTES = 4 * MIB };
static const uint64_t address = 0x7f0000000000;

int main(void)
{
    struct {
        uint32_t vaspace, pad;
        uint64_t token;
    } asked = {.vaspace = SPACE};
    struct {
        uint32_t memory, pad;
        uint64_t address, bytes, offset;
    } range = {.memory = MEMORY, .address = address, .bytes = BYTES};
    struct rm_device device = {.id = 0};
    struct rm_subdevice subdevice = {.id = 0};
    struct rm_memory memory = {.owner = OWNER, .size = BYTES};
    uint8_t vaspace[56] = {0};
    uint32_t client = 0, flags = BY_BAR1;
    int fd = open_node("/dev/nvidiactl");
    int64_t made, spaced, ranged, named;

    make_client(fd, &client);
    must(!rm_alloc(fd, client, client, DEVICE, NV01_DEVICE_0, &device, sizeof(device)), "device");
    must(!rm_alloc(fd, client, DEVICE, SUBDEVICE, NV20_SUBDEVICE_0, &subdevice, sizeof(subdevice)),
         "subdevice");
    must(!rm_alloc(fd, client, DEVICE, SPACE, FERMI_VASPACE_A, vaspace, sizeof(vaspace)), "address space");
    must(!rm_alloc(fd, client, DEVICE, MEMORY, NV01_MEMORY_LOCAL_USER, &memory, sizeof(memory)), "memory");
    made = rm_alloc(fd, client, SUBDEVICE, REACHED, NV50_THIRD_PARTY_P2P, &flags, sizeof(flags));
    spaced = rm_control(fd, client, REACHED, NV503C_CTRL_CMD_REGISTER_VA_SPACE, &asked, sizeof(asked));
    ranged = rm_control(fd, client, REACHED, NV503C_CTRL_CMD_REGISTER_VIDMEM, &range, sizeof(range));
    named = rm_control(fd, client, REACHED, NV503C_CTRL_CMD_REGISTER_PID, &client, sizeof(client));
    say("object %#llx space %#llx token %#llx memory %#llx of %#llx", (unsigned long long)made,
        (unsigned long long)spaced, (unsigned long long)asked.token, (unsigned long long)ranged,
        (unsigned long long)named);
    must(told(), "step");
    say("freed %#llx", (unsigned long long)rm_free(fd, client, MEMORY));
    hold();
}
