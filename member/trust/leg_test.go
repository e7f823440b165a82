package trust

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func testLeg() Leg {
	return Leg{Kind: LegPrefill, ID: [16]byte{1, 2, 3, 15: 9}, Engine: "engine-0"}
}

func tracedLeg() Leg {
	l := testLeg()
	l.Trace = Trace{ID: [16]byte{4, 15: 5}, Span: [8]byte{6, 7: 7}, Sampled: true}
	return l
}

func requestLeg() Leg {
	l := tracedLeg()
	l.Request = [16]byte{8, 15: 3}
	return l
}

func tenantLeg() Leg {
	l := requestLeg()
	l.Tenant = "team"
	return l
}

func TestLegOpensAsSealed(t *testing.T) {
	key := newCellKey().Derive(ForGatewayLegs)
	for _, l := range []Leg{
		testLeg(),
		{Kind: LegDecode, ID: [16]byte{15: 1}, Engine: "e"},
		{Kind: LegDecode, ID: [16]byte{0xff}, Engine: strings.Repeat("x", 255)},
		tracedLeg(),
		{Kind: LegDecode, ID: [16]byte{0xff}, Engine: strings.Repeat("x", 255), Trace: Trace{ID: [16]byte{15: 1}, Span: [8]byte{7: 1}}},
		requestLeg(),
		{Kind: LegDecode, ID: [16]byte{0xff}, Engine: strings.Repeat("x", 255), Request: [16]byte{15: 1}},
		tenantLeg(),
		{Kind: LegPrefill, ID: [16]byte{0xff}, Engine: strings.Repeat("x", 255), Tenant: strings.Repeat("t", MaxTenantBytes)},
	} {
		sealed := l.Seal(key)
		if len(sealed) > MaxLegBytes {
			t.Errorf("%d bytes, at most %d", len(sealed), MaxLegBytes)
		}
		if got, err := OpenLeg(sealed, key); err != nil || got != l {
			t.Errorf("%+v opens as %+v, %v", l, got, err)
		}
	}
}

// Its bytes never change: gateways and agents of different builds meet.
func TestLegBytes(t *testing.T) {
	key := [32]byte{1}
	sealed := Leg{Kind: LegDecode, ID: [16]byte{2}, Engine: "e"}.Seal(key)
	if want := append([]byte{1, 2, 2}, append(make([]byte, 15), 1, 'e')...); !bytes.HasPrefix(sealed, want) {
		t.Errorf("% x does not begin with % x", sealed, want)
	}
	sealed = Leg{Kind: LegDecode, ID: [16]byte{2}, Engine: "e", Trace: Trace{ID: [16]byte{3}, Span: [8]byte{4}, Sampled: true}}.Seal(key)
	want := append([]byte{2, 2, 2}, append(make([]byte, 15), 1, 'e', 3)...)
	want = append(append(append(want, make([]byte, 15)...), 4), append(make([]byte, 7), 1)...)
	if !bytes.HasPrefix(sealed, want) || len(sealed) != len(want)+32 {
		t.Errorf("% x does not begin with % x", sealed, want)
	}
	sealed = Leg{Kind: LegDecode, ID: [16]byte{2}, Engine: "e", Request: [16]byte{5}, Tenant: "ab"}.Seal(key)
	want = append([]byte{4, 2, 2}, append(make([]byte, 15), 1, 'e', 5)...)
	want = append(append(append(want, make([]byte, 15)...), make([]byte, 25)...), 2, 'a', 'b')
	if !bytes.HasPrefix(sealed, want) || len(sealed) != len(want)+32 {
		t.Errorf("% x does not begin with % x", sealed, want)
	}
	sealed = Leg{Kind: LegDecode, ID: [16]byte{2}, Engine: "e", Request: [16]byte{5}}.Seal(key)
	want = append([]byte{3, 2, 2}, append(make([]byte, 15), 1, 'e', 5)...)
	want = append(append(want, make([]byte, 15)...), make([]byte, 25)...)
	if !bytes.HasPrefix(sealed, want) || len(sealed) != len(want)+32 {
		t.Errorf("% x does not begin with % x", sealed, want)
	}
}

func TestLegsOfOthersAreRefused(t *testing.T) {
	cell := newCellKey()
	key := cell.Derive(ForGatewayLegs)
	sealed := testLeg().Seal(key)
	for name, other := range map[string][32]byte{
		"of another cell": newCellKey().Derive(ForGatewayLegs), "of another purpose": cell.Derive(ForTickets), "of zeros": {},
	} {
		if _, err := OpenLeg(sealed, other); !errors.Is(err, ErrProof) {
			t.Errorf("a key %s: %v", name, err)
		}
	}
}

func TestDamagedLegsAreRefused(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testDamaged(t, testLeg()) })
	t.Run("traced", func(t *testing.T) { testDamaged(t, tracedLeg()) })
	t.Run("of a request", func(t *testing.T) { testDamaged(t, requestLeg()) })
	t.Run("of a tenant", func(t *testing.T) { testDamaged(t, tenantLeg()) })
}

func testDamaged(t *testing.T, l Leg) {
	key := newCellKey().Derive(ForGatewayLegs)
	sealed := l.Seal(key)
	for bit := range 8 * len(sealed) {
		damaged := bytes.Clone(sealed)
		damaged[bit/8] ^= 1 << (bit % 8)
		if l, err := OpenLeg(damaged, key); !errors.Is(err, ErrProof) {
			t.Fatalf("with bit %d flipped it opens as %+v, %v", bit, l, err)
		}
	}
	for length := range sealed {
		if _, err := OpenLeg(sealed[:length], key); !errors.Is(err, ErrProof) {
			t.Fatalf("%d bytes of it open: %v", length, err)
		}
	}
	if _, err := OpenLeg(append(bytes.Clone(sealed), 0), key); !errors.Is(err, ErrProof) {
		t.Errorf("with a byte more it opens: %v", err)
	}
}

// A seal that is right does not make right what is malformed.
func TestMalformedLegsAreRefused(t *testing.T) {
	key := newCellKey().Derive(ForGatewayLegs)
	plain, traced, tenant := testLeg().Seal(key), tracedLeg().Seal(key), tenantLeg().Seal(key)
	for name, c := range map[string]struct {
		leg    []byte
		change func([]byte)
	}{
		"kind":           {plain, func(b []byte) { b[1] = 3 }},
		"length":         {plain, func(b []byte) { b[legHead-1]++ }},
		"shorter":        {plain, func(b []byte) { b[legHead-1]-- }},
		"no id":          {plain, func(b []byte) { clear(b[2:18]) }},
		"no trace":       {plain, func(b []byte) { b[0] = tracedLegVersion }},
		"a trace":        {traced, func(b []byte) { b[0] = legVersion }},
		"flags":          {traced, func(b []byte) { b[len(b)-1] = 2 }},
		"trace of zeros": {traced, func(b []byte) { clear(b[len(b)-legTrace:]) }},
		"no tenant":      {tenant, func(b []byte) { b[0] = RequestLegVersion }},
		"half a tenant":  {tenant, func(b []byte) { b[len(b)-5]-- }},
		"more of one":    {tenant, func(b []byte) { b[len(b)-5]++ }},
		"cut at one":     {traced, func(b []byte) { b[0] = TenantLegVersion }},
		"no span":        {traced, func(b []byte) { clear(b[len(b)-9 : len(b)-1]) }},
	} {
		b := bytes.Clone(c.leg[:len(c.leg)-32])
		c.change(b)
		if _, err := OpenLeg(append(b, gatewayMAC(key, legLabel, b)...), key); !errors.Is(err, ErrProof) || !strings.Contains(err.Error(), "malformed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLegIsForOneThing(t *testing.T) {
	l := testLeg()
	if err := l.Check(l); err != nil {
		t.Error(err)
	}
	for name, need := range map[string]Leg{
		"kind":    {Kind: LegDecode, ID: l.ID, Engine: l.Engine},
		"engine":  {Kind: l.Kind, ID: l.ID, Engine: "engine-1"},
		"request": {Kind: l.Kind, ID: [16]byte{7}, Engine: l.Engine},
		"or none": {Kind: l.Kind, Engine: l.Engine},
	} {
		if err := l.Check(need); !errors.Is(err, ErrProof) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

func TestLegNobodyCouldOpenIsNotSealed(t *testing.T) {
	id := [16]byte{1}
	for _, l := range []Leg{{Kind: LegPrefill, ID: id}, {Kind: 3, ID: id, Engine: "e"}, {Kind: LegPrefill, ID: id, Engine: strings.Repeat("x", 256)}, {Kind: LegPrefill, Engine: "e"}, {Kind: LegPrefill, ID: id, Engine: "e", Tenant: strings.Repeat("x", MaxTenantBytes+1)}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v was sealed", l.Kind)
				}
			}()
			l.Seal([32]byte{1})
		}()
	}
}

func FuzzOpenLeg(f *testing.F) {
	key := [32]byte{7}
	f.Add(testLeg().Seal(key))
	f.Add(tracedLeg().Seal(key))
	f.Add(tenantLeg().Seal(key))
	f.Add([]byte{1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := OpenLeg(b, key)
		if err == nil && !bytes.Equal(l.Seal(key), b) {
			t.Errorf("% x opens as %+v, which is sealed otherwise", b, l)
		}
	})
}
