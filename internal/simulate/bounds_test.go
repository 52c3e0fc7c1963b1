package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

func TestATopNeverMissesWhoWasRefusedOften(t *testing.T) {
	top := newTop()
	counts := map[string]int64{}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 * maxTop {
		user := fmt.Sprint("one of many ", r.IntN(10*maxTop))
		if n := r.IntN(20); n < 5 {
			user = fmt.Sprint("often ", n)
		}
		counts[user]++
		top.add("d.user", []descriptors.Entry{{Key: "user", Value: user}})
	}
	if len(top.all) != maxTop || len(top.few) != maxTop {
		t.Errorf("%d and %d are kept", len(top.all), len(top.few))
	}
	for i, got := range top.most(5) {
		user := got.Values[0].Value
		if want := counts[user]; want < 10_000 || got.Requests < want || got.Requests-got.AtMost > want {
			t.Errorf("%d: %+v was refused %d times", i, got, want)
		}
	}
}

func TestATopIsExactWhileThereAreFew(t *testing.T) {
	top := newTop()
	long := string(make([]byte, 1000))
	for _, user := range []string{"a", "b", "b", long + "x", long + "x", long + "x", long + "y"} {
		top.add("limit", []descriptors.Entry{{Key: "user", Value: user}})
	}
	var got []string
	for _, r := range top.most(9) {
		got = append(got, fmt.Sprint(r.Requests, " of ", len(r.Values[0].Value)))
	}
	if want := "[3 of 131 2 of 1 1 of 131 1 of 1]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestATimelineStaysShortAndLosesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, pause := range []time.Duration{time.Millisecond, time.Second, time.Hour, 24 * time.Hour} {
		var line Timeline
		at, n, last := int64(1_800_000_000_000_000), int64(0), int64(0)
		for range 20_000 {
			at += r.Int64N(pause.Microseconds())
			b := line.at(at)
			b.Requests++
			b.Refused[n%2]++
			n, last = n+1, at
		}
		sum := Bin{}
		for i, b := range line.Within(31).Bins {
			sum.Requests += b.Requests
			sum.Refused[0] += b.Refused[0]
			sum.Refused[1] += b.Refused[1]
			if i > 0 && line.Within(31).From(i).Sub(line.Within(31).From(i-1)) != line.Within(31).Width {
				t.Errorf("bin %d is not as wide as the others", i)
			}
		}
		if want := (Bin{n, [2]int64{n / 2, n / 2}}); sum != want || len(line.Bins) > maxBins {
			t.Errorf("%d bins hold %+v, want %+v", len(line.Bins), sum, want)
		}
		if end := line.From(len(line.Bins)); end.UnixMicro() <= last || end.Add(-line.Width).UnixMicro() > last {
			t.Errorf("it ends at %s, want just after %s", end, time.UnixMicro(last).UTC())
		}
	}
}

func TestEveryWidthIsAMultipleOfTheOneBefore(t *testing.T) {
	for i, w := range widths[1:] {
		if w%widths[i] != 0 {
			t.Errorf("%s is none of %s", w, widths[i])
		}
	}
}

// madeUp tells of each shape whether a day's traffic of a request in ten seconds looks like it.
var madeUp = map[Shape]func(at []int64, abuser int) bool{
	Steady: func(at []int64, abuser int) bool { return len(at) > 8200 && len(at) < 9100 && abuser == 0 },
	Abuser: func(at []int64, abuser int) bool { return abuser*9 > len(at)*4 && abuser*11 < len(at)*6 },
	BoundaryBurst: func(at []int64, _ int) bool {
		return at[0] == Begin+4*3600*second-36*second && at[1]-at[0] == 10*second
	},
	Diurnal: func(at []int64, _ int) bool {
		hours := map[int64]int{}
		for _, a := range at {
			hours[(a-Begin)/second/3600]++
		}
		return hours[14] > 5*hours[2] && len(at) > 8200 && len(at) < 9100
	},
}

func TestMadeUpTrafficIsAsItsShapeSays(t *testing.T) {
	mapping, err := NewMapping([]string{"user={value}"}, "")
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for shape, right := range madeUp {
		g := &Generator{Shape: shape, Rate: 0.1, For: day, Values: 3, Seed: 5, Window: time.Hour, Mapping: mapping}
		at, abuser := collect(t, g)
		if !right(at, abuser) {
			t.Errorf("%s has %d requests from %d on, %d of the abuser", shape, len(at), at[0]-Begin, abuser)
		}
		if !slices.IsSorted(at) || at[0] < Begin || at[len(at)-1] >= Begin+day.Microseconds() {
			t.Errorf("%s goes from %d to %d", shape, at[0], at[len(at)-1])
		}
		if again, _ := collect(t, g); !slices.Equal(again, at) {
			t.Errorf("%s is not the same twice", shape)
		}
	}
}

const second = 1_000_000

func collect(t *testing.T, g *Generator) (at []int64, abuser int) {
	t.Helper()
	if err := g.Each(func(r *Request) bool {
		at = append(at, r.At)
		if r.Descriptors[0][0].Value == "abuser" {
			abuser++
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return at, abuser
}
