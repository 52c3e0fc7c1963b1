package descriptors

// Place is a level of a rule, as its file has it: a key, and the value, pattern, list or networks beside it, or "" for any
// value.
type Place struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// Places are the levels of r, the outermost first. They are the caller's.
func (r *Rule) Places() []Place {
	places := make([]Place, len(r.levels))
	for i, l := range r.levels {
		places[i] = Place{l.key, l.value}
	}
	return places
}
