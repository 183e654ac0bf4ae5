/* What a NIC's driver does for GPUDirect RDMA, in small. "ADDRESS BYTES" written to /proc/reached asks
 * NVIDIA's driver for that memory of the process that writes; it is held until the next such line, or until
 * NVIDIA's driver takes it back. Reading says "STATUS PAGES FIRST TAKEN": the answer, how many pages, the
 * first bytes of the first page as the bus sees it, and whether it was taken back. */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "nv-p2p.h" /* needs the types of the others */

#define PAGE_MASK_64K 0xffffull

static DEFINE_MUTEX(lock);
static struct nvidia_p2p_page_table *table;
static u64 address, first;
static int status;
static u32 pages;
static bool taken;

/* Called under RM's locks, in whatever process frees the memory. */
static void revoked(void *data)
{
    taken = true;
    nvidia_p2p_free_page_table(table);
    table = NULL;
}

static u64 read_first(void)
{
    void __iomem *at = ioremap(table->pages[0]->physical_address, PAGE_SIZE);
    u64 value = at ? readq(at) : 0;

    if (at)
        iounmap(at);
    return value;
}

static void give_up(void)
{
    if (table)
        nvidia_p2p_put_pages(0, 0, address, table);
    table = NULL;
}

static ssize_t reached_write(struct file *file, const char __user *text, size_t bytes, loff_t *at)
{
    char line[64] = {0};
    u64 length;

    if (bytes >= sizeof(line) || copy_from_user(line, text, bytes))
        return -EINVAL;
    mutex_lock(&lock);
    give_up();
    taken = false;
    first = pages = 0;
    if (sscanf(line, "%llx %llx", &address, &length) != 2) {
        mutex_unlock(&lock);
        return -EINVAL;
    }
    status = nvidia_p2p_get_pages(0, 0, address & ~PAGE_MASK_64K, length, &table, revoked, NULL);
    if (status == 0) {
        pages = table->entries;
        first = read_first();
    }
    mutex_unlock(&lock);
    return bytes;
}

static int reached_show(struct seq_file *out, void *unused)
{
    seq_printf(out, "%d %u %llx %d\n", status, pages, first, taken);
    return 0;
}

static int reached_open(struct inode *inode, struct file *file)
{
    return single_open(file, reached_show, NULL);
}

static const struct proc_ops ops = {
    .proc_open = reached_open,
    .proc_read = seq_read,
    .proc_write = reached_write,
    .proc_lseek = seq_lseek,
    .proc_release = single_release,
};

static int __init reached_init(void)
{
    return proc_create("reached", 0666, NULL, &ops) ? 0 : -ENOMEM;
}

static void __exit reached_exit(void)
{
    remove_proc_entry("reached", NULL);
    give_up();
}

module_init(reached_init);
module_exit(reached_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("asks NVIDIA's driver for memory as a NIC's driver does");
