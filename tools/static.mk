# Builds the `cordon` command as one static, position-independent executable against musl.
#
# Why not with the rest of the tree: glibc's start-up code asks the processor about itself with dozens
# of CPUID instructions, each of which traps on a virtual machine: 0.5 ms per start, more than half of
# the whole budget. musl asks nothing. Meson knows one C compiler per build; so it calls this file.
#
# Given by the caller: OUT, OBJ (folder for objects), ROOT, SRCS, MUSL (folder with musl's crt files).

CC := gcc
comma := ,
CFLAGS := -specs=$(MUSL)/musl-gcc.specs -std=gnu17 -D_GNU_SOURCE -DNDEBUG -O2 -g -fPIE \
  -fvisibility=hidden -fstack-protector-strong -ffunction-sections -fdata-sections \
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wswitch-enum \
  -Wno-format-truncation -I$(ROOT)/include -I$(ROOT)/src \
  -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu
GCCLIB := $(dir $(shell $(CC) -print-libgcc-file-name))
# The first pieces of memory come from the program itself (src/base/heap.c), which also has its first
# instructions; what a run needs lies side by side (tools/layout says why).
HEAP := $(if $(filter %/base/heap.c,$(SRCS)),-Wl$(comma)--wrap=malloc -Wl$(comma)--wrap=calloc \
  -Wl$(comma)--wrap=realloc -Wl$(comma)--wrap=free -Wl$(comma)-e$(comma)heap_entry \
  -Wl$(comma)-z$(comma)pack-relative-relocs \
  -Wl$(comma)-T$(comma)$(ROOT)/tools/layout.ld)
OBJS := $(patsubst $(ROOT)/%.c,$(OBJ)/%.o,$(SRCS))

# Linkers write here and there, and the kernel then keeps the file in single pages. A copy, written from
# beginning to end, is in larger pieces, which are mapped and let go of in one go: 1 to 2 % of a start.
$(OUT): $(OBJS) $(ROOT)/tools/static.mk $(ROOT)/tools/layout.ld
	$(CC) -nostdlib -static-pie -o $@.linked $(MUSL)/rcrt1.o $(MUSL)/crti.o $(GCCLIB)crtbeginS.o $(OBJS) \
	  $(MUSL)/libc.a -lgcc -lgcc_eh $(GCCLIB)crtendS.o $(MUSL)/crtn.o \
	  $(HEAP) -Wl,--gc-sections -Wl,--sort-section=alignment -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,-Map=$@.map
	cp $@.linked $@.copied
	mv -f $@.copied $@
	rm -f $@.linked

$(OBJ)/%.o: $(ROOT)/%.c $(ROOT)/tools/static.mk
	@mkdir -p $(dir $@)
	$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

-include $(OBJS:.o=.d)
