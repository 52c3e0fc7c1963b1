package limiter

import "time"

// Decide decides b at now (µs since the Unix epoch) and fills b.Decisions and b.Allowed. rows[i] is the
// counter of b.Hits[i], changed in place; hits of one counter share a row. This is the only place that knows
// policies: every store, in whatever language, decides as this loop does.
func Decide(b *Batch, rows []*Row, now int64) {
	for i := range b.Hits {
		judge(&b.Hits[i], &b.Decisions[i], rows[i], now)
	}
	b.Allowed = b.Verdict()
	for first := 0; first < len(b.Hits); {
		end, passes := b.group(first)
		for i := first; i < end; i++ {
			charge(b, i, passes, rows[i])
		}
		first = end
	}
	for i := range b.Hits {
		h, d := &b.Hits[i], &b.Decisions[i]
		c := counter{h.Limit, rows[i], now}
		k := &kernels[h.Limit.Algorithm]
		rows[i].pending = 0
		d.ResetAfter = k.resetAfter(c)
		if !d.Allowed {
			d.RetryAfter = max(k.retryAfter(c, h.Need()), time.Microsecond)
		}
	}
}

// Need is the room that h wants before it is allowed; a give-back wants none.
func (h *Hit) Need() int64 {
	if h.Cost == 0 && !h.PassFull {
		return 1
	}
	return max(h.Cost, 0)
}

// judge gives h its own verdict. It gives back at once: nothing that comes later can undo a give-back.
func judge(h *Hit, d *Decision, row *Row, now int64) {
	c := counter{h.Limit, row, now}
	k := &kernels[h.Limit.Algorithm]
	k.roll(c)
	gaveBack := h.Cost < 0 && k.spend(c, h.Cost, h.At)
	room := k.room(c) - row.pending
	*d = Decision{
		State:   Decided,
		Allowed: h.Cost < 0 || h.Need() <= room,
		Charged: gaveBack,
		Room:    room,
		At:      now,
	}
	if d.Allowed || h.Charge&ChargeDenied != 0 {
		row.pending += max(h.Cost, 0)
	}
}

// charge counts hit i of b if its policy says so. passes tells whether all hits of its group are allowed.
func charge(b *Batch, i int, passes bool, row *Row) {
	h, d := &b.Hits[i], &b.Decisions[i]
	if h.Cost <= 0 || !h.charged(d.Allowed, passes, b.Allowed) {
		return
	}
	c := counter{h.Limit, row, d.At}
	k := &kernels[h.Limit.Algorithm]
	room := k.room(c)
	d.Charged = k.spend(c, h.Cost, h.At)
	d.Room -= room - k.room(c) // a late charge takes less than its cost
}

func (h *Hit) charged(allowed, passes, admitted bool) bool {
	together, denied := h.Charge&Together != 0, h.Charge&ChargeDenied != 0
	switch {
	case together && denied:
		return !allowed || passes && admitted
	case together:
		return passes && admitted
	case denied:
		return true
	}
	return passes
}

// Charges tells of each hit with a cost whether it is charged, by b's Decisions and b.Allowed. It is for stores that
// are spread over several places, whose parts have decided by themselves.
func (b *Batch) Charges(yield func(i int, charged bool) bool) {
	for first := 0; first < len(b.Hits); {
		end, passes := b.group(first)
		for i := first; i < end; i++ {
			h := &b.Hits[i]
			if h.Cost > 0 && !yield(i, h.charged(b.Decisions[i].Allowed, passes, b.Allowed)) {
				return
			}
		}
		first = end
	}
}

// group returns the end of the group that starts at first, and whether all of its hits are allowed.
func (b *Batch) group(first int) (end int, passes bool) {
	passes = true
	for end = first; end < len(b.Hits) && b.Hits[end].Group == b.Hits[first].Group; end++ {
		passes = passes && b.Decisions[end].Allowed
	}
	return end, passes
}

// Verdict tells whether the request is admitted, from what its decisions say in Allowed: no enforced
// descriptor is denied, and not every quota descriptor is.
func (b *Batch) Verdict() bool {
	quotas, passing := 0, 0
	for first := 0; first < len(b.Hits); {
		end, passes := b.group(first)
		switch b.Hits[first].Role {
		case Enforced:
			if !passes {
				return false
			}
		case Quota:
			quotas++
			if passes {
				passing++
			}
		case Shadow:
		}
		first = end
	}
	return quotas == 0 || passing > 0
}
