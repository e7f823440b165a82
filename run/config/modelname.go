package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrModels means that several tables fit the name of a model.
var ErrModels = errors.New("config: which [model] table")

// ModelOf returns the table of a model by the name that an engine gives it, and
// the table's own name; none is no error, and its model does not think. Names
// fit if they are equal, or else equal but for case, for what stands before the
// last slash, and for which of - . _ separates words. A family does not stand for
// its models: ids of one are wrong for another whose name begins the same.
func (c *Config) ModelOf(name string) (table string, m Model, err error) {
	if m, exact := c.Model[name]; exact {
		return name, m, nil
	}
	var fit []string
	for table := range c.Model {
		if foldModel(table) == foldModel(name) {
			fit = append(fit, table)
		}
	}
	slices.Sort(fit)
	switch len(fit) {
	case 0:
		return "", Model{}, nil
	case 1:
		return fit[0], c.Model[fit[0]], nil
	}
	return "", Model{}, fmt.Errorf("%w: %q fits %s; give one of them exactly that name", ErrModels, name, strings.Join(fit, " and "))
}

func foldModel(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '.' {
			return '_'
		}
		return r
	}, strings.ToLower(name))
}
