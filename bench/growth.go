package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// growth is what was found along axes.
type growth struct {
	axes     []axis
	measured *comparison
}

// course is what a decision costs a server along an axis, as far as it was measured.
type course struct {
	server string
	points []coursePoint
}

// coursePoint has CPU time in µs, and its ratio to the no-op's.
type coursePoint struct {
	n             int
	micros, ratio float64
}

// courses gives those of all servers, in the order of their measurement.
func (g *growth) courses(along axis) []course {
	var all []course
	rows := g.measured.rows()
	for _, n := range along.points {
		for _, row := range rows {
			if row.Scenario != along.at(n) {
				continue
			}
			i := slices.IndexFunc(all, func(c course) bool { return c.server == row.Server })
			if i < 0 {
				i, all = len(all), append(all, course{server: row.Server})
			}
			all[i].points = append(all[i].points, coursePoint{n, row.CPUSum, row.CPURatio})
		}
	}
	return all
}

// steepness is the dearest point over the cheapest, 0 if that is too cheap to be measured.
func (c course) steepness() float64 {
	least, most := c.points[0].micros, c.points[0].micros
	for _, point := range c.points {
		least, most = min(least, point.micros), max(most, point.micros)
	}
	if least == 0 {
		return 0
	}
	return most / least
}

// write prints a table an axis for people.
func (g *growth) write(out io.Writer) error {
	fmt.Fprintln(out, "CPU µs a decision, and its ratio to the no-op's")
	for _, axis := range g.axes {
		if courses := g.courses(axis); len(courses) > 0 {
			fmt.Fprintln(out)
			if err := writeCourses(out, axis.name, courses); err != nil {
				return err
			}
		}
	}
	failed := uint64(0)
	for _, row := range g.measured.rows() {
		failed += row.Errors
	}
	_, err := fmt.Fprintf(out, "\nrequests that failed: %d\n", failed)
	return err
}

func writeCourses(out io.Writer, name string, courses []course) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%s\t", name)
	for _, course := range courses {
		fmt.Fprintf(table, "%s\tratio\t", course.server)
	}
	fmt.Fprintln(table)
	for i, point := range courses[0].points {
		fmt.Fprintf(table, "%d\t", point.n)
		for _, course := range courses {
			fmt.Fprintf(table, "%s\t%s\t", known(course.points[i].micros), known(course.points[i].ratio))
		}
		fmt.Fprintln(table)
	}
	fmt.Fprint(table, "most / least\t")
	for _, course := range courses {
		fmt.Fprintf(table, "%s\t\t", known(course.steepness()))
	}
	fmt.Fprintln(table)
	return table.Flush()
}
