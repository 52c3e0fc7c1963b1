package proctest

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// steppedClock is a library that has gettimeofday, which Redis takes the time from, tell it off by a number of seconds
// in a file.
const steppedClock = `
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void begin(void) {
	void *file = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, open(getenv("STEPPED_CLOCK"), O_RDONLY), 0);
	if (file != MAP_FAILED) ahead = file;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	tv->tv_sec = now.tv_sec + (ahead ? *ahead : 0);
	tv->tv_usec = now.tv_nsec / 1000;
	return 0;
}
`

// StartRedisWithClock is StartRedis with a clock of its own, which step puts ahead of this machine's, or behind it, by
// whole seconds. It needs a C compiler.
func StartRedisWithClock(t testing.TB) (r *Redis, step func(ahead time.Duration)) {
	t.Helper()
	dir := t.TempDir()
	source, library, offset := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so"), filepath.Join(dir, "ahead")
	must(t, os.WriteFile(source, []byte(steppedClock), 0o600))
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("a C compiler is needed: %v\n%s", err, out)
	}
	file, err := os.OpenFile(offset, os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	t.Cleanup(func() { _ = file.Close() }) // its number has been written
	step = func(ahead time.Duration) {
		t.Helper()
		_, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(ahead/time.Second))), 0)
		must(t, err)
		if r == nil {
			return
		}
		before := time.Now()
		now, err := r.Client().Time(t.Context()).Result()
		must(t, err)
		const most = time.Second / 2
		if early, late := before.Sub(now)+ahead, time.Until(now)-ahead; early > most || late > most {
			t.Fatalf("Redis's clock is %s too early, or %s too late", early, late)
		}
	}
	step(0)
	r = startRedis(t, []string{"LD_PRELOAD=" + library, "STEPPED_CLOCK=" + offset})
	return r, step
}
