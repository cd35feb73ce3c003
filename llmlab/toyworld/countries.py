"""The facts of the toy world: countries with capital, continent, language and population.

Populations are mid-2024 totals in millions, rounded to the nearest million, from United Nations,
World Population Prospects 2024 (total population, medium variant). The language is the official or
most widely used one; a country may have others. Countries with an answer in dispute are left out.
"""

from dataclasses import dataclass

CONTINENTS = {
    "Europe": "欧洲",
    "Asia": "亚洲",
    "Africa": "非洲",
    "North America": "北美洲",
    "South America": "南美洲",
    "Oceania": "大洋洲",
}

LANGUAGES = {
    "French": "法语", "German": "德语", "Italian": "意大利语", "Spanish": "西班牙语",
    "Portuguese": "葡萄牙语", "English": "英语", "Dutch": "荷兰语", "Polish": "波兰语",
    "Greek": "希腊语", "Hungarian": "匈牙利语", "Swedish": "瑞典语", "Norwegian": "挪威语",
    "Danish": "丹麦语", "Finnish": "芬兰语", "Romanian": "罗马尼亚语", "Ukrainian": "乌克兰语",
    "Czech": "捷克语", "Chinese": "汉语", "Japanese": "日语", "Korean": "韩语",
    "Vietnamese": "越南语", "Thai": "泰语", "Persian": "波斯语", "Mongolian": "蒙古语",
    "Nepali": "尼泊尔语", "Bengali": "孟加拉语", "Arabic": "阿拉伯语", "Amharic": "阿姆哈拉语",
    "Swahili": "斯瓦希里语", "Hindi": "印地语", "Urdu": "乌尔都语",
}  # fmt: skip


@dataclass(frozen=True)
class Country:
    """One country. `english` is the name inside a sentence ("the Netherlands")."""

    english: str
    chinese: str
    capital_english: str
    capital_chinese: str
    continent: str  # a key of CONTINENTS
    language: str  # a key of LANGUAGES
    population_millions: int


_ROWS = """
France              | 法国       | Paris        | 巴黎           | Europe        | French     | 67
Germany             | 德国       | Berlin       | 柏林           | Europe        | German     | 85
Italy               | 意大利     | Rome         | 罗马           | Europe        | Italian    | 59
Spain               | 西班牙     | Madrid       | 马德里         | Europe        | Spanish    | 48
Portugal            | 葡萄牙     | Lisbon       | 里斯本         | Europe        | Portuguese | 10
the United Kingdom  | 英国       | London       | 伦敦           | Europe        | English    | 69
Ireland             | 爱尔兰     | Dublin       | 都柏林         | Europe        | English    | 5
the Netherlands     | 荷兰       | Amsterdam    | 阿姆斯特丹     | Europe        | Dutch      | 18
Austria             | 奥地利     | Vienna       | 维也纳         | Europe        | German     | 9
Poland              | 波兰       | Warsaw       | 华沙           | Europe        | Polish     | 39
Greece              | 希腊       | Athens       | 雅典           | Europe        | Greek      | 10
Hungary             | 匈牙利     | Budapest     | 布达佩斯       | Europe        | Hungarian  | 10
Sweden              | 瑞典       | Stockholm    | 斯德哥尔摩     | Europe        | Swedish    | 11
Norway              | 挪威       | Oslo         | 奥斯陆         | Europe        | Norwegian  | 6
Denmark             | 丹麦       | Copenhagen   | 哥本哈根       | Europe        | Danish     | 6
Finland             | 芬兰       | Helsinki     | 赫尔辛基       | Europe        | Finnish    | 6
Romania             | 罗马尼亚   | Bucharest    | 布加勒斯特     | Europe        | Romanian   | 19
Ukraine             | 乌克兰     | Kyiv         | 基辅           | Europe        | Ukrainian  | 38
Czechia             | 捷克       | Prague       | 布拉格         | Europe        | Czech      | 11
China               | 中国       | Beijing      | 北京           | Asia          | Chinese    | 1419
Japan               | 日本       | Tokyo        | 东京           | Asia          | Japanese   | 124
South Korea         | 韩国       | Seoul        | 首尔           | Asia          | Korean     | 52
Vietnam             | 越南       | Hanoi        | 河内           | Asia          | Vietnamese | 101
Thailand            | 泰国       | Bangkok      | 曼谷           | Asia          | Thai       | 72
India               | 印度       | New Delhi    | 新德里         | Asia          | Hindi      | 1451
Pakistan            | 巴基斯坦   | Islamabad    | 伊斯兰堡       | Asia          | Urdu       | 251
Bangladesh          | 孟加拉国   | Dhaka        | 达卡           | Asia          | Bengali    | 174
Nepal               | 尼泊尔     | Kathmandu    | 加德满都       | Asia          | Nepali     | 30
Iran                | 伊朗       | Tehran       | 德黑兰         | Asia          | Persian    | 92
Mongolia            | 蒙古       | Ulaanbaatar  | 乌兰巴托       | Asia          | Mongolian  | 3
Saudi Arabia        | 沙特阿拉伯 | Riyadh       | 利雅得         | Asia          | Arabic     | 34
Egypt               | 埃及       | Cairo        | 开罗           | Africa        | Arabic     | 117
Morocco             | 摩洛哥     | Rabat        | 拉巴特         | Africa        | Arabic     | 38
Algeria             | 阿尔及利亚 | Algiers      | 阿尔及尔       | Africa        | Arabic     | 47
Ethiopia            | 埃塞俄比亚 | Addis Ababa  | 亚的斯亚贝巴   | Africa        | Amharic    | 132
Kenya               | 肯尼亚     | Nairobi      | 内罗毕         | Africa        | Swahili    | 56
Ghana               | 加纳       | Accra        | 阿克拉         | Africa        | English    | 34
Nigeria             | 尼日利亚   | Abuja        | 阿布贾         | Africa        | English    | 233
Angola              | 安哥拉     | Luanda       | 罗安达         | Africa        | Portuguese | 38
the United States   | 美国       | Washington   | 华盛顿         | North America | English    | 345
Canada              | 加拿大     | Ottawa       | 渥太华         | North America | English    | 40
Mexico              | 墨西哥     | Mexico City  | 墨西哥城       | North America | Spanish    | 131
Cuba                | 古巴       | Havana       | 哈瓦那         | North America | Spanish    | 11
Brazil              | 巴西       | Brasilia     | 巴西利亚       | South America | Portuguese | 212
Argentina           | 阿根廷     | Buenos Aires | 布宜诺斯艾利斯 | South America | Spanish    | 46
Chile               | 智利       | Santiago     | 圣地亚哥       | South America | Spanish    | 20
Peru                | 秘鲁       | Lima         | 利马           | South America | Spanish    | 34
Colombia            | 哥伦比亚   | Bogota       | 波哥大         | South America | Spanish    | 53
Australia           | 澳大利亚   | Canberra     | 堪培拉         | Oceania       | English    | 27
New Zealand         | 新西兰     | Wellington   | 惠灵顿         | Oceania       | English    | 5
"""


def _parse(row: str) -> Country:
    *names, population = (cell.strip() for cell in row.split("|"))
    return Country(*names, population_millions=int(population))


COUNTRIES: tuple[Country, ...] = tuple(_parse(row) for row in _ROWS.strip().splitlines())
