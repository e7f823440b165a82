package telemetry

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Fields reports the numbers of a snapshot by the tags of its fields, so that a room says of
// each number what it is called, and imports nothing for it:
//
//	Posted  uint64                       `metric:"meridian_agent_transfers_posted_total"`
//	Done    uint64                       `metric:"meridian_agent_transfers_ended_total,done"`
//	Freed   uint64                       `metric:"meridian_handoff_offers_ended_total,freed" less:"Expired"`
//	Legs    map[string]map[string]uint64 `metric:"meridian_gateway_legs_total"`
//	FoundIn [2]uint64                    `metric:"meridian_cache_tier_tokens_total" index:"memory,disk"`
//	Engines map[string]EngineCount       `metric:"meridian_gateway_engines"` // Up int `metric:",up"`
//
// Values of labels are, in this order, those that are given, those behind the name, and keys of
// maps or the names of an index. What less names is taken off. Several metrics of one field
// stand apart by a space. Durations are told in seconds; a nil pointer tells nothing.
func (s *Sink) Fields(snapshot any, labels ...string) {
	v := reflect.ValueOf(snapshot)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.IsValid() {
		s.fields(v, "", labels)
	}
}

// Of is a source of one snapshot.
func Of[T any](read func() T) Source {
	return func(s *Sink) { s.Fields(read()) }
}

func (s *Sink) fields(v reflect.Value, name string, labels []string) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		tag, tagged := field.Tag.Lookup("metric")
		if !tagged && value.Kind() == reflect.Struct {
			s.fields(value, name, labels)
		}
		for one := range strings.FieldsSeq(tag) {
			parts := strings.Split(one, ",")
			own, texts := cmp.Or(parts[0], name), append(slices.Clip(labels), parts[1:]...)
			if less := field.Tag.Get("less"); less != "" {
				left := numberOf(value)
				for other := range strings.SplitSeq(less, ",") {
					left -= numberOf(v.FieldByName(other))
				}
				s.Value(own, left, texts...)
			} else {
				s.reflect(value, own, texts, strings.Split(field.Tag.Get("index"), ","))
			}
		}
	}
}

func (s *Sink) reflect(v reflect.Value, name string, labels, index []string) {
	switch v.Kind() {
	case reflect.Map:
		for key, value := range v.Seq2() {
			s.reflect(value, name, append(slices.Clip(labels), key.String()), index)
		}
	case reflect.Array, reflect.Slice:
		for i := range min(v.Len(), len(index)) {
			s.reflect(v.Index(i), name, append(slices.Clip(labels), index[i]), index)
		}
	case reflect.Struct:
		if v.FieldByName("Buckets").IsValid() {
			s.Distribution(name, distributionOf(v), labels...)
		} else {
			s.fields(v, name, labels)
		}
	default:
		s.Value(name, numberOf(v), labels...)
	}
}

func numberOf(v reflect.Value) float64 {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return time.Duration(v.Int()).Seconds()
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	case v.Kind() == reflect.Bool && v.Bool():
		return 1
	case v.Kind() == reflect.Bool:
		return 0
	}
	return v.Float()
}

// distributionOf reads a room's histogram, which has fields of the same names.
func distributionOf(v reflect.Value) Distribution {
	d := Distribution{Count: v.FieldByName("Count").Uint(), Sum: v.FieldByName("Sum").Float(), Buckets: v.FieldByName("Buckets").Interface().(map[float64]uint64)}
	examples := v.FieldByName("Exemplars")
	for i := range examples.Len() {
		e := examples.Index(i)
		d.Exemplars = append(d.Exemplars, Exemplar{Trace: e.FieldByName("Trace").String(), Value: e.FieldByName("Seconds").Float(), At: e.FieldByName("At").Interface().(time.Time)})
	}
	return d
}
