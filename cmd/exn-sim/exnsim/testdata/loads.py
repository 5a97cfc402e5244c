"""Recomputes with networkx what exn-sim says that each link carries.

usage: loads.py RUN...      folders with network.graphml and paths.csv

The bytes of the paths must add up to the attributes total and flows of every edge. Says
for each run how many edges are wrong, and how many hops the paths have more than shortest
ones.
"""
import csv
import os
import sys

import networkx as nx

for run in sys.argv[1:]:
    graph = nx.read_graphml(os.path.join(run, "network.graphml"))
    total = {edge: 0 for edge in graph.edges}
    flows = dict(total)
    shortest = dict(nx.all_pairs_shortest_path_length(graph))
    longer = 0
    for row in csv.DictReader(open(os.path.join(run, "paths.csv"))):
        walk = row["path"].split()
        longer += len(walk) - 1 - shortest[walk[0]][walk[-1]]
        for edge in zip(walk, walk[1:]):
            total[edge] += int(row["bytes"])
            flows[edge] += 1
    wrong = [e for e in graph.edges if graph.edges[e]["total"] != total[e] or graph.edges[e]["flows"] != flows[e]]
    print(os.path.basename(run), len(graph.edges), sum(flows.values()), len(wrong), longer)
