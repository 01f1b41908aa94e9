// Lucene's monitor over the same searches and documents as bench/watch/searches.py: one thread.
// Arguments: the folder of the files, the number of batches, the documents that are matched together, the presearcher.
// For each batch a line: seconds of the thread's processor time, seconds on the clock, matches, their checksum.

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.DoublePoint;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StringField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.Term;
import org.apache.lucene.monitor.Monitor;
import org.apache.lucene.monitor.MonitorConfiguration;
import org.apache.lucene.monitor.MonitorQuery;
import org.apache.lucene.monitor.MultiMatchingQueries;
import org.apache.lucene.monitor.MultipassTermFilteredPresearcher;
import org.apache.lucene.monitor.Presearcher;
import org.apache.lucene.monitor.QueryMatch;
import org.apache.lucene.monitor.TermFilteredPresearcher;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.PhraseQuery;
import org.apache.lucene.search.PrefixQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.TermQuery;

public class SearchMonitor {
  static String[] words(String text) {
    return text.isEmpty() ? new String[0] : text.split(" ");
  }

  static Query query(String[] fields) {
    List<Query> must = new ArrayList<>();
    for (String word : words(fields[1])) must.add(new TermQuery(new Term("body", word)));
    if (!fields[2].isEmpty())
      for (String phrase : fields[2].split("\\|")) must.add(new PhraseQuery("body", phrase.split(" ")));
    for (String start : words(fields[3])) must.add(new PrefixQuery(new Term("body", start)));
    for (String value : words(fields[4])) {
      String[] parts = value.split("=");
      must.add(new TermQuery(new Term(parts[0], parts[1])));
    }
    String[] price = words(fields[5]);
    if (price.length == 2)
      must.add(DoublePoint.newRangeQuery("price", Double.parseDouble(price[0]), Double.parseDouble(price[1])));
    String[] any = words(fields[6]);
    if (any.length > 0) {
      BooleanQuery.Builder some = new BooleanQuery.Builder();
      for (String word : any) some.add(new TermQuery(new Term("body", word)), Occur.SHOULD);
      must.add(some.build());
    }
    String[] not = words(fields[7]);
    if (must.size() == 1 && not.length == 0) return must.get(0);
    BooleanQuery.Builder built = new BooleanQuery.Builder();
    for (Query each : must) built.add(each, Occur.MUST);
    for (String word : not) built.add(new TermQuery(new Term("body", word)), Occur.MUST_NOT);
    return built.build();
  }

  static Document document(String line) {
    String[] fields = line.split("\t", -1);
    Document document = new Document();
    document.add(new TextField("title", fields[1], Field.Store.NO));
    document.add(new TextField("body", fields[2], Field.Store.NO));
    document.add(new StringField("category", fields[3], Field.Store.NO));
    document.add(new StringField("country", fields[4], Field.Store.NO));
    document.add(new DoublePoint("price", Double.parseDouble(fields[5])));
    return document;
  }

  public static void main(String[] arguments) throws IOException {
    Path folder = Path.of(arguments[0]);
    int batches = Integer.parseInt(arguments[1]);
    int together = Integer.parseInt(arguments[2]);
    Presearcher presearcher =
        arguments[3].equals("multipass") ? new MultipassTermFilteredPresearcher(2) : new TermFilteredPresearcher();
    var clock = ManagementFactory.getThreadMXBean();
    try (Monitor monitor = new Monitor(new WhitespaceAnalyzer(), presearcher, new MonitorConfiguration())) {
      List<MonitorQuery> queries = new ArrayList<>();
      for (String line : Files.readAllLines(folder.resolve("searches.tsv"))) {
        String[] fields = line.split("\t", -1);
        queries.add(new MonitorQuery(fields[0], query(fields)));
      }
      monitor.register(queries);
      System.out.println("ready " + monitor.getQueryCount());
      for (int batch = 0; batch < batches; batch++) {
        List<String> lines = Files.readAllLines(folder.resolve("documents-" + batch + ".tsv"));
        long began = System.nanoTime(), spent = clock.getCurrentThreadCpuTime();
        long matches = 0, sum = 0;
        for (int first = 0; first < lines.size(); first += together) {
          int count = Math.min(together, lines.size() - first);
          Document[] documents = new Document[count];
          for (int n = 0; n < count; n++) documents[n] = document(lines.get(first + n));
          MultiMatchingQueries<QueryMatch> found = monitor.match(documents, QueryMatch.SIMPLE_MATCHER);
          for (int n = 0; n < count; n++) {
            for (QueryMatch match : found.getMatches(n)) {
              matches++;
              sum += (long) (first + n + 1) * (Long.parseLong(match.getQueryId().substring(1)) + 1);
            }
          }
        }
        System.out.printf(
            Locale.ROOT,
            "batch %.6f %.6f %d %d%n",
            (clock.getCurrentThreadCpuTime() - spent) / 1e9,
            (System.nanoTime() - began) / 1e9,
            matches,
            sum);
      }
    }
  }
}
