package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// Shape is how made-up traffic comes.
type Shape string

// The shapes. Requests come at random instants that have nothing to do with each other, except in BoundaryBurst.
const (
	// Steady is the same rate at all times.
	Steady Shape = "steady"
	// BoundaryBurst begins a hundredth of a window before the end of each fourth window, and lasts to the end of the next
	// one, evenly: for limits whose windows have edges.
	BoundaryBurst Shape = "boundary-burst"
	// Abuser is steady, and one of the values sends as much as all others together.
	Abuser Shape = "abuser"
	// Diurnal is a rate that swings once a day, between a fifth of it at 2:00 UTC and nine fifths at 14:00.
	Diurnal Shape = "diurnal"
)

// Begin is when made-up traffic begins, in µs since the Unix epoch: 2026-01-01 00:00 UTC, when a week begins, too.
const Begin = 1_767_225_600_000_000

// Field is the one of made-up traffic: a value, 1 to Values, or abuser.
const Field = "value"

// Generator is made-up traffic: with the same settings always the same.
type Generator struct {
	Shape Shape
	// Rate is requests a second: of BoundaryBurst during bursts, of the others on average.
	Rate float64
	// For is how long it goes on.
	For time.Duration
	// Values is how many there are, each as often as the others.
	Values int
	Seed   uint64
	// Window is that of BoundaryBurst.
	Window  time.Duration
	Mapping *Mapping
}

// Check reports a mapping that wants other fields than there are, and a window that no limit has.
func (g *Generator) Check() error {
	if g.Shape == BoundaryBurst && g.Window < time.Second {
		return fmt.Errorf("no limit has a window of %s; want 1s or more", g.Window)
	}
	for _, name := range g.Mapping.Fields() {
		if name != Field {
			return fmt.Errorf("made-up traffic has no field %s; there is %s", name, Field)
		}
	}
	return nil
}

// Each implements Traffic.
func (g *Generator) Each(yield func(*Request) bool) error {
	random := rand.New(rand.NewPCG(g.Seed, 0))
	fields := make([]string, len(g.Mapping.Fields()))
	for at := range g.Instants(random) {
		if value := g.value(random); len(fields) > 0 {
			fields[0] = value
		}
		r, err := g.Mapping.Request(at, fields)
		if err != nil {
			return err
		}
		if !yield(r) {
			return nil
		}
	}
	return nil
}

// Instants are those of the requests, in µs since the Unix epoch.
func (g *Generator) Instants(random *rand.Rand) func(yield func(at int64) bool) {
	if g.Shape == BoundaryBurst {
		return g.bursts
	}
	return func(yield func(at int64) bool) {
		rate := g.Rate / 1e6 // for each µs
		if g.Shape == Diurnal {
			rate *= 1.8
		}
		for at := 0.0; ; {
			at += random.ExpFloat64() / rate
			if at >= float64(g.For.Microseconds()) {
				return
			}
			if g.Shape == Diurnal && random.Float64()*1.8 > daily(at) {
				continue
			}
			if !yield(Begin + int64(at)) {
				return
			}
		}
	}
}

// daily is the part of the average rate that there is so many µs after midnight.
func daily(at float64) float64 {
	const day = 24 * 60 * 60 * 1e6
	return 1 - 0.8*math.Cos(2*math.Pi*(at/day-2.0/24))
}

func (g *Generator) bursts(yield func(at int64) bool) {
	window, pause := g.Window.Microseconds(), 1e6/g.Rate
	end := Begin + g.For.Microseconds()
	for edge := Begin + 4*window; edge < end; edge += 4 * window {
		first := edge - window/100
		for n := 0.0; ; n++ {
			at := first + int64(n*pause)
			if at >= min(edge+window, end) {
				break
			}
			if !yield(at) {
				return
			}
		}
	}
}

func (g *Generator) value(random *rand.Rand) string {
	if g.Shape == Abuser && random.Uint32()&1 == 0 {
		return string(Abuser)
	}
	return strconv.Itoa(1 + random.IntN(g.Values))
}
